"""What people look at: curves, tables, pictures, explanations, the HTML report."""
