"""Tensors into frames and back: pure, drawn from seeds, with no state but what the caller keeps."""
