"""Searches: all of them, one, and the setting up of one."""
