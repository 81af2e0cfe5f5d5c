"""One process that simulates all workers of a run (users read `host: virtual`). Only `launch` and the planner use it.

Here is only what differs for workers that share a process and a clock; all else is the engine's. Begin with
`sim_workers.py` and `scheduler.py`; `sim_clock.py` draws how long everything takes, `declared_clock.py` lets a
planner declare what travels.
"""

from scalebook.training.engine.sim.declared_clock import DeclaredBytes
from scalebook.training.engine.sim.model_multiplexer import ModelMultiplexer
from scalebook.training.engine.sim.scheduler import Deadlock, Watch
from scalebook.training.engine.sim.sim_clock import Draws, Line, SimulatedClock
from scalebook.training.engine.sim.sim_end import SimulatedEnd
from scalebook.training.engine.sim.sim_workers import SimulatedWorkers

__all__ = [
    "Deadlock",
    "DeclaredBytes",
    "Draws",
    "Line",
    "ModelMultiplexer",
    "SimulatedClock",
    "SimulatedEnd",
    "SimulatedWorkers",
    "Watch",
]
