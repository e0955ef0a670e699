"""What can be proven of one operation, and of the values that a network computes."""
