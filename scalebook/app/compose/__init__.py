"""Composing an experiment."""
