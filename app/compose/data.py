"""Sources of the clock of simulated workers: measurements by Plan of such an experiment, and recorded runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scalebook.app.shared import form
from scalebook.training.base import Workspace
from scalebook.training.engine.rules import RECORDED
from scalebook.training.experiments import Description, config_hash
from scalebook.training.jobs import ENDED, JobFolder
from scalebook.training.notebook import Notebook
from scalebook.training.planner import measured
from scalebook.training.pricing import Profile, profile_mapping
from scalebook.training.tracking import RunRecord, names

MOST_RUNS: Final = 20
ALIKE: Final = ("model", "data")
"""Config keys that must be equal for an experiment to take the measured times of another one."""


@dataclass(frozen=True)
class ClockSource:
    """A source of times: its label, and what it writes into the clock."""

    label: str
    clock: Mapping[str, Any]
    is_measured: bool = False
    """Measured by Plan, not recorded by a run."""

    def is_of(self, clock: Any) -> bool:
        """Whether a config's clock has these times; a server's only where it has any."""
        return isinstance(clock, Mapping) and all(
            clock.get(key) == value for key, value in self.clock.items() if key in clock or key != "server_s"
        )


def clock_sources(
    workspace: Workspace, notebook: Notebook, draft: form.ConfigDraft, runs: Sequence[RunRecord],
    description: Description,
) -> list[ClockSource]:  # fmt: skip
    """Measurements by Plan, then the newest runs that have timed their real workers."""
    sources = []
    for cell in notebook.experiments():
        if all(cell.config.get(key) == draft.get(key) for key in ALIKE):
            profile = measured(workspace, config_hash(cell.experiment(description)))
            if profile is not None:
                sources.append(ClockSource(f"As Plan measured {cell.name}", _of_profile(profile), is_measured=True))
    timed = [run for run in runs if _has_timings(workspace, run)]
    return [*sources, *(clock_of_run(run.id, run.title) for run in timed[:MOST_RUNS])]


def clock_of_run(run: str, title: str = "") -> ClockSource:
    """The clock of a run: its workers' times per gradient, its servers' times per push."""
    recorded = {"kind": RECORDED, "run": run}
    label = f"As recorded in {title} ({run[:8]})" if title else f"As recorded in {run[:8]}"
    return ClockSource(label, {"gradient_s": recorded, "server_s": dict(recorded)})


def _of_profile(profile: Profile) -> dict[str, Any]:
    written = profile_mapping(profile)
    return {"gradient_s": written["gradient"], "server_s": written["server"]}


def _has_timings(workspace: Workspace, run: RunRecord) -> bool:
    if run.tags.get(names.TAG_STRATEGY) != "AsyncPS" or names.is_simulated(run.tags) or run.ended is None:
        return False
    job = JobFolder(workspace.jobs / run.id)
    return (job.path / names.TIMINGS_JSON).is_file() and job.state() in ENDED


def chosen_source(draft: form.ConfigDraft, sources: Sequence[ClockSource]) -> ClockSource | None:
    """The source of the config's clock, also a run that is not among `sources`; None for a clock written by hand."""
    clock = draft.get(form.CLOCK)
    match = next((source for source in sources if source.is_of(clock)), None)
    run = draft.recorded_run()
    return match or (clock_of_run(run) if run and clock_of_run(run).is_of(clock) else None)
