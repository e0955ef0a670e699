"""What one does with certificates: data sets, attacks, pictures."""
