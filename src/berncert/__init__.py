"""Smooth a classifier with Bernstein polynomials and prove, input by input, how far its prediction holds."""
