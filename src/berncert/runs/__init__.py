"""Runs: a model, a data set and settings, to a folder of records.

`methods` has the settings, `workers` what they do, `performing` does it, `records` keeps it, `named` finds it again.
"""
