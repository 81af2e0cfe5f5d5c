"""All workers of a run simulated by one process (users read `host: virtual`): what the engine does is the engine's own,
and here is only what differs for workers that share a process and a clock. Nobody else knows of it but `launch`."""

from scalebook.training.engine.sim.model_multiplexer import ModelMultiplexer
from scalebook.training.engine.sim.scheduler import Deadlock, Watch
from scalebook.training.engine.sim.sim_clock import Line, SimulatedClock
from scalebook.training.engine.sim.sim_end import SimulatedEnd
from scalebook.training.engine.sim.sim_workers import SimulatedWorkers

__all__ = ["Deadlock", "Line", "ModelMultiplexer", "SimulatedClock", "SimulatedEnd", "SimulatedWorkers", "Watch"]
