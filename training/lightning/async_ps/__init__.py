"""The strategy AsyncPS: training with a parameter server.

Begin with `async_ps.py`, which translates Lightning's hooks. `async_run.py` starts and watches the processes,
`session.py` is what a process does at its Trainer's hooks, `worker_session.py` a worker that trains, `applied_step.py`
one of its steps. `refusals.py` refuses what several workers cannot do.
"""
