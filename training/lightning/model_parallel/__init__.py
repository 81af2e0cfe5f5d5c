"""One model over several workers: tensor parallelism and sharding, in forked workers.

Begin with `model_parallel.py`, the strategy. `splitting.py` applies what a module says of its split; `whole_state.py`
makes whole tensors of the parts and parts of whole ones; `clipping.py` has the norm over parts.
"""
