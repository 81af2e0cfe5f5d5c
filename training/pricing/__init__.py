"""What an update takes, from what a model and its machines are: for the planner.

Begin with `splits.py`, the price of one model over several workers. `layers.py` and `profile.py` say what is priced,
`layer_times.py` measures layers, `pipelines.py` plays stages. What the browser side uses imports no torch.
"""
