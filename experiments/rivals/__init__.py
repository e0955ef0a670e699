"""Certified accuracy over the radius, ours beside the rivals: one picture for each data set and norm."""
