"""Training by recipes, in one loop that can be killed at any moment and resumed to end in the same weights."""
