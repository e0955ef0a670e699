"""Why bend: certified accuracy over the number of features, with affine heads and with polynomial ones."""
