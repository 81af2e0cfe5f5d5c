"""Memory that processes share, with locks and events, and parameters that are views into it."""
