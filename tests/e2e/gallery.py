"""A workspace in which every page has something to show, made in a second: nothing in it is trained."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from scalebook.training.base.files import yaml
from scalebook.training.base.processes import ProcessId
from scalebook.training.base.workspace import SETTINGS, Workspace
from scalebook.training.experiments import catalogue
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.identity import config_hash
from scalebook.training.experiments.search.types import RateRule
from scalebook.training.jobs.executor import LocalHandle
from scalebook.training.jobs.job_folder import JobFolder, Progress
from scalebook.training.notebook import edit, store
from scalebook.training.notebook.export.gathering import gather
from scalebook.training.notebook.export.html_file import as_html
from scalebook.training.search.search_folder import SearchFolder
from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import RunReader
from scalebook.training.tracking.run_start import open_store
from tests.app import searches
from tests.app.plan.planned import keep
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

```yaml claim=no-worse
runs: pixelcnn-async-2
against: pixelcnn-ddp-2
figure: best
metric: val/bits_per_dim
at_most: 1.05
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
CROWD = "---\ntitle: Too many\n---\n# A thousand workers\n\n```yaml experiment=thousand\n{}```\n"
PLAYED = {
    "class_path": "scalebook.training.lightning.AsyncPS",
    "init_args": {"rule": "async", "host": "virtual", "clock": {"gradient_s": 0.1}},
}
CELLS: dict[str, dict[str, Any]] = {
    "pixelcnn-async-2": {},
    "pixelcnn-ddp-2": {"strategy": "ddp"},
    "pixelcnn-single": {"strategy": "auto", "workers": 1},
    "pixelcnn-async-16": {"strategy": PLAYED, "workers": 16},
}
TAGS = {
    "ddp": {names.TAG_STRATEGY: "ddp", names.TAG_RULE: ""},
    "single": {names.TAG_STRATEGY: "single", names.TAG_RULE: ""},
    "async-16": {names.TAG_CLOCK: names.VIRTUAL},
}
"""What runs of a cell with this in its name say of themselves, unlike the others."""
TICK = ("[data-testid=stDataFrame] canvas@18,52",)
"""The box before the first row of a table: a selector, and where on it, in pixels."""
OPENED: dict[str, tuple[str, list[str]]] = {
    "dialog-new-notebook": ("notebook", ["role=button[name='New notebook']"]),
    "dialog-ask": ("notebook", ["role=button[name='Ask'] >> nth=0"]),
    "dialog-rename": ("notebook", [".st-key-notebook-more button", "role=menuitem[name='Rename']"]),
    "dialog-delete-notebook": ("notebook", [".st-key-notebook-more button", "role=menuitem[name='Delete']"]),
    "dialog-own-model": ("notebook", [".st-key-notebook-more button", "role=menuitem[name='Use my own model']"]),
    "dialog-history": ("notebook", [".st-key-notebook-history button"]),
    "dialog-comparison": ("compare", ["role=button[name='Save in a notebook']"]),
    "dialog-delete-cell": ("notebook", [".st-key-more-pixelcnn-async-2 button", "role=menuitem[name='Delete']"]),
    "dialog-delete-note": (
        "notebook",
        ["[class*=st-key-edit-note-] [class*=st-key-more-] button", "role=menuitem[name='Delete']"],
    ),
    "dialog-add-comparison": ("notebook", ["role=button[name='Add a comparison']"]),
    "dialog-edit-comparison": ("notebook", [".st-key-cell-comparison-both >> role=button[name='Edit']"]),
    "dialog-add-claim": ("notebook", ["role=button[name='Add a claim']"]),
    "dialog-edit-claim": ("notebook", [".st-key-cell-claim-no-worse >> role=button[name='Edit']"]),
    "dialog-tags": ("runs", [*TICK, "role=button[name='Tags']"]),
    "dialog-delete-runs": ("runs", [*TICK, "role=button[name=/^Delete/]"]),
    "dialog-remarks": ("run", [".st-key-remarks-edit button"]),
    "dialog-delete-searches": ("searches", [".st-key-delete-searches button"]),
    "menu-cell": ("notebook", [".st-key-more-pixelcnn-async-2 button"]),
    "note-editor": ("notebook", ["[class*=st-key-edit-note-] button"]),
    "runs-devices": ("runs", [".st-key-devices summary"]),
    "runs-filter": ("runs", ["role=button[name='Filter']"]),
    "runs-columns": ("runs", ["role=button[name='Columns']"]),
    "search-add-trials": ("search-map", ["role=button[name='Add trials']"]),
    "search-add-point": ("search-map", ["role=button[name='Add a point']"]),
    "run-files": ("run", ["role=tab[name='Files']"]),
    "run-others": ("run", ["role=tab[name='Other runs']"]),
    "run-environment": ("run", ["role=tab[name='Environment']"]),
    "compose-yaml": ("compose-cell", ["role=radio[name='YAML']"]),
    "search-setup-how": ("search-setup", ["role=button[name='Next: sampler and pruner']"]),
}
"""What opens on a page: its name, the page, and what is pressed there, one after the other."""
OWN_MODULE = ("stranger.py", "modules = ['stranger']\n")
"""With these a workspace asks whether it is to be trusted: a module, and what scalebook.toml says."""


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
            "notebook-crowd": "/?notebook=crowd",
            "compose": "/compose?notebook=staleness",
            "compose-cell": "/compose?notebook=staleness&cell=pixelcnn-async-2",
            "compose-virtual": "/compose?notebook=staleness&cell=pixelcnn-async-16",
            "runs": "/runs",
            "run": f"/runs?run={run['finished']}",
            "run-live": f"/runs?run={run['running']}",
            "run-failed": f"/runs?run={run['failed']}",
            "run-trial": f"/runs?run={self.trial}",
            "run-virtual": f"/runs?run={run['virtual']}",
            "searches": "/search",
            "search-setup": "/search?notebook=staleness&experiment=pixelcnn-async-2",
            "search-map": asked,
            "search-curves": f"{asked}&view=Curves",
            "search-parallel": f"{asked}&view=Parallel+coordinates",
            "search-importance": f"{asked}&view=Importance",
            "search-pareto": f"{asked}&view=Pareto",
            "search-table": f"{asked}&view=Table",
            "compare": f"/compare?runs={both}",
            "compare-virtual": f"/compare?runs={run['finished']},{run['virtual']}",
            "compare-empty": "/compare",
            "plan": "/plan?notebook=staleness&cell=pixelcnn-async-2&system=Form",
            "plan-measured": "/plan?notebook=staleness&cell=pixelcnn-async-2",
            "plan-yaml": "/plan?system=YAML",
            "help": "/help",
            "help-document": "/help?document=concepts/staleness",
        }


def exported(workspace: Workspace) -> str:
    """The notebook as Export makes it."""
    description = catalogue.describe(workspace)
    return as_html(
        gather(workspace, RunReader(workspace.tracking_uri()), store.read(workspace.root / "staleness.md"), description)
    )


def ask_for_trust(workspace: Workspace) -> None:
    """From now on every page asks whether the folder is to be trusted."""
    name, settings = OWN_MODULE
    (workspace.root / name).write_text("", encoding="utf-8")
    (workspace.root / SETTINGS).write_text(settings, encoding="utf-8")


def ask_no_more(workspace: Workspace) -> None:
    for name in (OWN_MODULE[0], SETTINGS):
        (workspace.root / name).unlink()


@contextmanager
def filled(workspace: Workspace, trials: int = 200) -> Iterator[Gallery]:
    """Notebooks, runs that have finished, failed, stopped and go on, and a search with that many trials."""
    found = _fill(workspace, trials)
    with JobFolder(workspace.jobs / found.runs["running"]).log.open("ab") as log:
        gone, goes_on = (subprocess.Popen(["sleep", "3600"], stdout=log, start_new_session=True) for _ in range(2))
    try:
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
    (root / "crowd.md").write_text(CROWD.format(yaml.dump({"config": config(workers=1000)})), encoding="utf-8")
    notebook = store.read(root / "staleness.md")
    store.save(notebook, edit.replace_note(notebook.notebook, 0, NOTE.split("---\n", 2)[2] + "A second thought.\n"))
    hashes = {name: config_hash(Experiment.read(body, description)) for name, body in bodies.items()}

    def run(cell: str, seed: int = 1, state: str = "finished", level: float = 2.0) -> str:
        return record(
            workspace, cell=cell, notebook="staleness.md", seed=seed, state=state, config_hash=hashes[cell],
            workers=bodies[cell]["trainer"]["devices"], level=level, what=bodies[cell],
            points=12 if state == "running" else 30,
        ).id  # fmt: skip

    runs = {
        "finished": run("pixelcnn-async-2"),
        "second": run("pixelcnn-async-2", 2, level=2.1),
        "ddp": run("pixelcnn-ddp-2", level=1.95),
        "failed": run("pixelcnn-ddp-2", 2, "failed"),
        "running": run("pixelcnn-single", 1, "running"),
        "stopped": run("pixelcnn-single", 2, "stopped"),
        "virtual": run("pixelcnn-async-16", level=2.2),
    }
    client = open_store(workspace)
    for run_id in runs.values():
        cell = client.get_run(run_id).data.tags[names.TAG_CELL]
        for tag, value in next((tags for name, tags in TAGS.items() if name in cell), {}).items():
            client.set_tag(run_id, tag, value)
    JobFolder(workspace.jobs / runs["running"]).write(
        Progress(time.time(), "training", 480, 15_360, 7.4, 1, 0.4, 11.0, {names.TRAIN_LOSS: 2.41})
    )
    keep(workspace, measured=hashes["pixelcnn-async-2"])
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
