"""Encode tensors as frames and decode them. Pure: random numbers come from seeds, and the caller keeps all state.

Begin with `coder.py`, the contract of all codecs; `kernels.py` has what each computes.
"""
