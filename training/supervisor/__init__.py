"""The supervisor of a workspace, one small process: it starts jobs in order, watches them, and records the end of those
that die.

Begin with `supervisor_loop.py`, its process and what it does in one turn. `job_watch.py` watches a job,
`lost_jobs.py` records the end of one that could not, `search_drivers.py` keeps the drivers of searches alive, and
`notifier.py` tells people.
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.supervisor.job_watch import JobLimits
    from scalebook.training.supervisor.supervisor_loop import supervise

__all__ = ["JobLimits", "supervise"]

__getattr__ = interface(__name__)
