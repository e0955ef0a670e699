"""Side-by-side measurements; each module writes a record and its Markdown rendering."""
