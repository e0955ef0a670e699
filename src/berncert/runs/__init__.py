"""Runs: a method applied to a data set, row by row, in a folder that a killed run resumes from.

`settings` says what a run works on, `execute` does it, `table` writes the rows, `records` reads them, `lookup` finds
runs by the words of a command line, `training_images` warns of images that the model has seen.
"""
