"""Searches as a cell or a file describes them: read, checked, counted. Nothing here runs anything."""
