"""All workers of a run simulated by one process (users read `host: virtual`): what the engine does is the engine's own,
and here is only what differs for workers that share a process and a clock. Nobody else knows of it but `launch`."""

from scalebook.training.ps.sim.clock import Line, SimulatedClock
from scalebook.training.ps.sim.end import SimulatedEnd
from scalebook.training.ps.sim.one_model import OneModel
from scalebook.training.ps.sim.scheduler import Deadlock, Watch
from scalebook.training.ps.sim.workers import SimulatedWorkers

__all__ = ["Deadlock", "Line", "OneModel", "SimulatedClock", "SimulatedEnd", "SimulatedWorkers", "Watch"]
