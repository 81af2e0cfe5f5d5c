"""Two tests of a config that need no study: a learning-rate range test, and the largest batch that fits.

Begin with `rates.py` and `largest_batch.py`, the commands. Each runs jobs of the queue (`followed_job.py`) with a
config cut to a few updates (`tuning_config.py`).
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.planner.tuning import largest_batch, rates
    from scalebook.training.planner.tuning.followed_job import INTERRUPTED
    from scalebook.training.planner.tuning.tuning_config import number, prepared, whole_number

__all__ = ["INTERRUPTED", "largest_batch", "number", "prepared", "rates", "whole_number"]

__getattr__ = interface(__name__)
