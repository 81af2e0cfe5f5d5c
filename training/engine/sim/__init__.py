"""All workers of a run simulated by one process (users read `host: virtual`), on a clock that is declared.

What the engine does is the engine's own code; here is only what differs for workers that share a process and a clock.
Nobody else knows of it but `launch.py` and the planner. Begin with `sim_workers.py` and `scheduler.py`.
"""

from scalebook.training.engine.sim.model_multiplexer import ModelMultiplexer
from scalebook.training.engine.sim.scheduler import Deadlock, Watch
from scalebook.training.engine.sim.sim_clock import Line, SimulatedClock
from scalebook.training.engine.sim.sim_end import SimulatedEnd
from scalebook.training.engine.sim.sim_workers import SimulatedWorkers

__all__ = ["Deadlock", "Line", "ModelMultiplexer", "SimulatedClock", "SimulatedEnd", "SimulatedWorkers", "Watch"]
