"""An ordinary network of MNIST, from three lines to a training for its radii, with the radii at each step."""
