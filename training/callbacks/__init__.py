"""The callbacks of a notebook's runs: they measure, report progress, listen for a stop and detect divergence.
`run_callbacks.py` lists them.

Begin with `measure.py`, what is recorded; `computed_figures.py` makes rates and shares of counts and times,
`job_files.py` reads and writes the job's folder.
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.callbacks.batches import batch_size, loss_of
    from scalebook.training.callbacks.divergence import DivergenceGuard
    from scalebook.training.callbacks.job_files import Pictures, left_by_lost
    from scalebook.training.callbacks.measure import random_state
    from scalebook.training.callbacks.metric_summary import logged
    from scalebook.training.callbacks.noise_scale import training_samples
    from scalebook.training.callbacks.resource_limits import GpuShare, Threads
    from scalebook.training.callbacks.run_callbacks import default_callbacks
    from scalebook.training.callbacks.scaled_rates import ScaledRates, rate_callbacks, refuse_without_rate
    from scalebook.training.callbacks.step_clocks import DataClock

__all__ = [
    "DataClock", "DivergenceGuard", "GpuShare", "Pictures", "ScaledRates", "Threads", "batch_size",
    "default_callbacks", "left_by_lost", "logged", "loss_of", "random_state", "rate_callbacks", "refuse_without_rate",
    "training_samples",
]  # fmt: skip

__getattr__ = interface(__name__)
