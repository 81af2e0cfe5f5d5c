"""The notebook file: Markdown with fenced YAML cells, read and written without losing a byte. No torch in here."""
