"""One folder for each table or figure of the paper; each runs by `python -m experiments.<name>`."""
