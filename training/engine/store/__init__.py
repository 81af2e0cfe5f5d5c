"""Gradients become updates: where an optimizer lies in memory, what is averaged, and who applies it."""
