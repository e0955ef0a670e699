"""The paper's Figures 1 and 3: a classifier in two dimensions, smoothed, with the zones in which it is proven safe."""
