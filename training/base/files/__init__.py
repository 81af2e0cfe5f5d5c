"""Files that people and processes write: read with care, written whole."""
