"""Jobs: a folder and a process each, started in order by one supervisor per workspace. No torch in this package.

Begin with `job_folder.py` (what is known of a job, and its state, which is derived) and `job_requests.py` (submit,
find, end). `schedule.py` decides who is next, `leases.py` which devices they get and hold, `executor.py` where they
run. `launcher.py` is what the supervisor starts them by: on this machine each is forked from `fork_server.py`, a
process that has imported everything.
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.jobs import (
        begin_request,
        dry_runs,
        end_notices,
        job_requests,
        supervisor_handle,
    )
    from scalebook.training.jobs.devices import (
        CPU_QUOTA,
        Allocation,
        NodeDevices,
        cpu_quota,
        machine_words,
        this_machine,
    )
    from scalebook.training.jobs.dry_runs import DryRunResult
    from scalebook.training.jobs.executor import (
        CLAIMED_ELSEWHERE,
        GPUS_TAKEN,
        LOCAL,
        Executor,
        JobUsage,
        Level,
        LocalExecutor,
        LocalHandle,
        PartEnd,
        configured_executor,
    )
    from scalebook.training.jobs.gpu_checks import (
        about_gpus,
        computes_on_gpus,
        gpu_problems,
        machines_of,
    )
    from scalebook.training.jobs.gpus import VISIBLE, gpu_readings, gpus_here
    from scalebook.training.jobs.job_environment import (
        THREADS,
        forget_environment,
        has_environment,
        keep_environment,
        kept_environment,
    )
    from scalebook.training.jobs.job_folder import (
        ENDED,
        MLFLOW_STATUS,
        STOPPED,
        UNWATCHED,
        JobFolder,
        JobRequest,
        JobStart,
        LostWorker,
        Progress,
        Result,
        Standstill,
        State,
        StopRequest,
        TrialOf,
    )
    from scalebook.training.jobs.job_nodes import is_short, lent_to, part_folders, parts_of
    from scalebook.training.jobs.launcher import (
        PRELOAD,
        RUNNER,
        Event,
        Launcher,
        LauncherLost,
        LocalLauncher,
        ProcessEnded,
    )
    from scalebook.training.jobs.leases import ROUNDING, DurationEstimates, Lease, time_left
    from scalebook.training.jobs.recorded_clock import read_recorded
    from scalebook.training.jobs.schedule import Start, in_order, plan
    from scalebook.training.jobs.supervisor_handle import SupervisorKeeper
    from scalebook.training.jobs.usage import SystemMetrics, Usage, UsageMeter, read_usage
    from scalebook.training.jobs.waiting_jobs import Direction, move, waiting_reasons

__all__ = [
    "CLAIMED_ELSEWHERE", "CPU_QUOTA", "ENDED", "GPUS_TAKEN", "LOCAL", "MLFLOW_STATUS", "PRELOAD", "ROUNDING", "RUNNER",
    "STOPPED", "THREADS", "UNWATCHED", "VISIBLE", "Allocation", "Direction", "DryRunResult", "DurationEstimates",
    "Event", "Executor", "JobFolder", "JobRequest", "JobStart", "JobUsage", "Launcher", "LauncherLost", "Lease",
    "Level", "LocalExecutor", "LocalHandle", "LocalLauncher", "LostWorker", "NodeDevices", "PartEnd", "ProcessEnded",
    "Progress", "Result", "Standstill", "Start", "State", "StopRequest", "SupervisorKeeper", "SystemMetrics",
    "TrialOf", "Usage", "UsageMeter", "about_gpus", "begin_request", "computes_on_gpus", "configured_executor",
    "cpu_quota", "dry_runs", "end_notices", "forget_environment", "gpu_problems", "gpu_readings", "gpus_here",
    "has_environment", "in_order", "is_short", "job_requests", "keep_environment", "kept_environment", "lent_to",
    "machine_words", "machines_of", "move", "part_folders", "parts_of", "plan", "read_recorded", "read_usage",
    "supervisor_handle", "this_machine", "time_left", "waiting_reasons",
]  # fmt: skip

__getattr__ = interface(__name__)
