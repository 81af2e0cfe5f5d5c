"""Memory that processes share, locks and events in it, and parameters that are views into it."""
