"""Lightning's DDP with forked workers, and codecs for what they send.

Begin with `ddp.py`.
"""
