"""The documentation, and what makes the parts of it that the code says already."""
