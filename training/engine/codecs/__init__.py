"""Tensors into frames and back: pure, drawn from seeds, with no state but what the caller keeps.

Begin with `coder.py`, the contract of all codecs; `kernels.py` has what each computes.
"""
