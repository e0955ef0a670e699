"""Training: one loop for every recipe; it can be killed at any moment and ends in the same weights."""
