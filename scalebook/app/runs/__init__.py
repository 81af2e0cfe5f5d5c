"""Runs: all of them, and one."""
