"""What is recorded of a run: the names, the logger that writes them, and reading them back."""
