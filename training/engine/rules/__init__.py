"""What is done with a gradient, decided without a tensor. Imports no torch, so forms and the planner use it too.

Begin with `update_rules.py` (who may go on, what is averaged), `damping.py` (what staleness costs), `codecs.py` (how
gradients travel), `local_steps.py` (when a worker communicates) and `settings.py`, which has them together;
`contradictions.py` says which do not go together.
"""
