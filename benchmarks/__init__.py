"""Every figure in the documentation comes from a command in here."""
