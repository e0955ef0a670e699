"""Models: heads to train, checkpoints, and the models that are shipped with the package."""
