"""AsyncPS: the strategy with a parameter server.

Begin with `async_ps.py`, which translates Lightning's hooks. `async_run.py` starts and watches the processes,
`session.py` is what a process is for its Trainer, `worker_session.py` is a worker that trains, `applied_step.py` is one
of its steps. `refusals.py` says what several workers cannot do.
"""
