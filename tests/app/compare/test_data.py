"""What a new comparison and a new claim begin with."""

from pathlib import Path

import pytest

from scalebook.app.compare.data import new_claim, new_comparison
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments import catalogue
from scalebook.training.experiments.identity import config_hash
from scalebook.training.notebook import store
from scalebook.training.tracking.run_reader import RunReader
from tests.app import answered
from tests.app.recorded import config, record
from tests.shared_files import Prepared

SIDES = ["lab-one", "lab-ddp-2", "lab-async-4-virtual"]


def begun(workspace: Workspace) -> tuple[list[str], object, object]:
    """What is chosen at first: the experiments of a comparison, and both sides of a claim."""
    stored, description = store.read(workspace.root / "lab.md"), catalogue.describe(workspace)
    recorded = RunReader(workspace.tracking_uri()).runs(notebook="lab.md")
    claim = new_claim(stored, description, recorded)
    runs = new_comparison(stored, description, recorded=recorded).cell.runs
    return runs, claim.written["runs"], claim.written.get("against")


@pytest.mark.parametrize("own_runs", [False, True])
def test_pilot_and_dry_runs_are_not_what_is_compared(tmp_path: Path, prepared: Prepared, own_runs: bool) -> None:
    """The sides of a question are, unless an experiment that a person wrote has runs."""
    workspace = prepared.into(Workspace(tmp_path))
    path = answered.answered(workspace)
    dry = answered.experiment("dry", trainer={**config(1, "auto")["trainer"], "fast_dev_run": True})
    path.write_text(path.read_text(encoding="utf-8") + "\n" + dry, encoding="utf-8")
    now = {
        cell.name: config_hash(cell.experiment(catalogue.describe(workspace)))
        for cell in store.read(path).notebook.experiments()
    }
    for name in ("lab-pilot", "dry", *(["own"] if own_runs else [])):
        record(workspace, cell=name, notebook=path.name, config_hash=now[name])
    if own_runs:
        assert begun(workspace) == (["own"], ["own"], None)
    else:
        assert begun(workspace) == (SIDES, ["lab-async-4-virtual"], "lab-one")
