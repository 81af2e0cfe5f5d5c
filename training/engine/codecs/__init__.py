"""Encode tensors as frames and decode them. Pure: random numbers come from seeds, and the caller keeps all state."""
