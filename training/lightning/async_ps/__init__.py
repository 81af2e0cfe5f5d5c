"""The strategies AsyncPS and Peers: workers that the engine connects, with a parameter server or with each other.

Begin with `engine_strategy.py`, which translates Lightning's hooks; `async_ps.py` and `peers.py` are their arguments.
`async_run.py` starts and watches the processes, `session.py` is what a process does at its Trainer's hooks,
`worker_session.py` a worker that trains, `applied_step.py` one of its steps. `refusals.py` refuses what several workers
cannot do.
"""
