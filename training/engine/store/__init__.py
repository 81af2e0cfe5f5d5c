"""Gradients become updates: where an optimizer lies in memory, how gradients are averaged, and who applies them."""
