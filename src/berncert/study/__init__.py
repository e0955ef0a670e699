"""What one does with certificates: for now, pictures."""
