"""A workspace in which every page has something to show, made in a second: nothing in it is trained."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from scalebook.training.config import catalogue
from scalebook.training.config.identity import config_hash
from scalebook.training.config.search.types import RateRule
from scalebook.training.files import yaml
from scalebook.training.jobs.executors.local.executor import LocalHandle
from scalebook.training.jobs.folder import JobFolder, Progress
from scalebook.training.jobs.process import ProcessId
from scalebook.training.search.folder import SearchFolder
from scalebook.training.tracking import names
from scalebook.training.tracking.starting import open_store
from scalebook.training.workspace import Workspace
from tests.app import searches
from tests.app.recorded import config, record

NOTE = """---
title: Does staleness hurt?
---
# Does staleness hurt?

Two workers push their gradients when they are ready: **more updates** per second, from *older* parameters.
See [the book](https://example.com/staleness), `staleness_mean`, and this list:

- one process, which is exact
- DDP, which waits for the slowest
- a parameter server, which does not wait

"""
REST = """
What came of it: the curves lie together.

```yaml comparison=both
runs: [pixelcnn-async-2, pixelcnn-ddp-2]
metric: val/bits_per_dim
target: 2.4
```

```yaml search=batch-size
experiment: pixelcnn-async-2
objective: val/loss
space:
  batch_size: {powers_of_two: [16, 1024]}
  learning_rate: {log_uniform: [0.001, 1.0]}
trials: 200
```
"""
BROKEN = "---\ntitle: Half written\n---\nA cell that cannot be read.\n\n```yaml experiment=torn\nconfig: [1\n```\n"
CELLS: dict[str, dict[str, Any]] = {
    "pixelcnn-async-2": {},
    "pixelcnn-ddp-2": {"strategy": "ddp"},
    "pixelcnn-single": {"strategy": "auto", "workers": 1},
}


@dataclass(frozen=True)
class Gallery:
    """What is in it: ids of runs by what became of them, of one that is a trial, and the search."""

    runs: dict[str, str]
    trial: str
    search: SearchFolder

    def addresses(self) -> dict[str, str]:
        """Every page and view, by a name that is good for a file."""
        run, asked = self.runs, f"/search?search={self.search.id}"
        both = f"{run['finished']},{run['ddp']}"
        return {
            "notebook": "/?notebook=staleness",
            "notebook-empty": "/?notebook=nothing-yet",
            "notebook-broken": "/?notebook=torn",
            "compose": "/compose?notebook=staleness",
            "compose-cell": "/compose?notebook=staleness&cell=pixelcnn-async-2",
            "runs": "/runs",
            "run": f"/runs?run={run['finished']}",
            "run-live": f"/runs?run={run['running']}",
            "run-failed": f"/runs?run={run['failed']}",
            "run-trial": f"/runs?run={self.trial}",
            "searches": "/search",
            "search-setup": "/search?notebook=staleness&experiment=pixelcnn-async-2",
            "search-map": asked,
            "search-curves": f"{asked}&view=Curves",
            "search-parallel": f"{asked}&view=Parallel+coordinates",
            "search-importance": f"{asked}&view=Importance",
            "search-pareto": f"{asked}&view=Pareto",
            "search-table": f"{asked}&view=Table",
            "compare": f"/compare?runs={both}",
            "compare-empty": "/compare",
        }


@contextmanager
def filled(workspace: Workspace, trials: int = 200) -> Iterator[Gallery]:
    """Notebooks, runs that have finished, failed, stopped and go on, and a search with that many trials."""
    gone, goes_on = (subprocess.Popen(["sleep", "3600"], start_new_session=True) for _ in range(2))
    try:
        found = _fill(workspace, trials)
        for run_id in (
            *found.runs.values(),
            found.trial,
        ):  # a supervisor clears away the processes of runs that have ended
            of = goes_on if run_id == found.runs["running"] else gone
            job = JobFolder(workspace.jobs / run_id)
            if started := job.started():
                job.write(replace(started, handle=LocalHandle(ProcessId.of(of.pid))))
        gone.kill()
        gone.wait()
        yield found
    finally:
        for process in (gone, goes_on):
            process.kill()
            process.wait()


def _fill(workspace: Workspace, trials: int) -> Gallery:
    description = catalogue.describe(workspace)
    bodies = {name: config(**options) for name, options in CELLS.items()}
    cells = [f"```yaml experiment={name}\n{yaml.dump({'repeats': 2, 'config': body})}```\n" for name, body in
             bodies.items()]  # fmt: skip
    root = workspace.root
    (root / "staleness.md").write_text(NOTE + "\n".join(cells) + REST, encoding="utf-8")
    (root / "nothing-yet.md").write_text("---\ntitle: Nothing yet\n---\n", encoding="utf-8")
    (root / "torn.md").write_text(BROKEN, encoding="utf-8")
    hashes = {name: config_hash(body, description) for name, body in bodies.items()}

    def run(cell: str, seed: int = 1, state: str = "finished", level: float = 2.0) -> str:
        return record(
            workspace, cell=cell, notebook="staleness.md", seed=seed, state=state, config_hash=hashes[cell],
            workers=1 if "single" in cell else 2, level=level, what=bodies[cell],
            points=12 if state == "running" else 30,
        ).id  # fmt: skip

    runs = {
        "finished": run("pixelcnn-async-2"),
        "second": run("pixelcnn-async-2", 2, level=2.1),
        "ddp": run("pixelcnn-ddp-2", level=1.95),
        "failed": run("pixelcnn-ddp-2", 2, "failed"),
        "running": run("pixelcnn-single", 1, "running"),
        "stopped": run("pixelcnn-single", 2, "stopped"),
    }
    JobFolder(workspace.jobs / runs["running"]).write(
        Progress(time.time(), "training", 480, 15_360, 7.4, 1, 0.4, 11.0, {names.TRAIN_LOSS: 2.41})
    )
    search = _search(workspace, trials)
    return Gallery(runs, _trial(workspace, search), search)


def _search(workspace: Workspace, trials: int) -> SearchFolder:
    spec = searches.spec(trials=trials, rate=RateRule("linear"))
    return searches.folder(workspace, spec, searches.records(spec, trials), notebook="staleness.md")


def _trial(workspace: Workspace, search: SearchFolder) -> str:
    """The id of a run that is a trial of the search."""
    found = record(workspace, cell="batch-size", notebook="staleness.md", seed=1).id
    client = open_store(workspace)
    for tag, value in {names.TAG_PARENT: search.id, names.TAG_TRIAL: "7"}.items():
        client.set_tag(found, tag, value)
    return found
