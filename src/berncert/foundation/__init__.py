"""What every room stands on: array types, argument checks, rounding, progress, settings, files. No torch here."""
