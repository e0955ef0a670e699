"""What every room stands on: array types, argument checks, rounding, progress, settings, vocabulary. No torch here."""
