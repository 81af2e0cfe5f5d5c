"""`scalebook fit` on two machines, which are two processes of this one, each with a workspace of its own."""

import socket
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base.files import yaml
from scalebook.training.base.workspace import Workspace
from scalebook.training.cli.main import main
from scalebook.training.cli.runner import PARTS
from scalebook.training.jobs.job_requests import all_jobs
from scalebook.training.tracking import names
from tests.shared_files import Prepared
from tests.training.lightning.async_ps.machines import Machine, by_hand, together
from tests.training.runs import config, reader

pytestmark = pytest.mark.long

SAME = (
    names.UPDATES, names.SAMPLES, names.BYTES, names.TRAIN_LOSS, names.final(names.VAL_LOSS),
    names.final(names.VAL_ACCURACY),
)  # fmt: skip


@pytest.fixture
def workspaces(tmp_path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> list[Workspace]:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return [prepared.into(Workspace(tmp_path / f"workspace-{node}")) for node in range(2)]


OTHERWISE = ["--optimizer.lr", "0.3", "--trainer.max_epochs", "3", "--threads", "2"]
OTHER_KEYS = "optimizer.lr: differs between node 0 (HOST) and node 1 (HOST), and so does trainer.max_epochs"


def written(folder: Path, strategy: Any = "ddp", **trainer: Any) -> str:
    """A file with the config."""
    asked = {**config(strategy, **trainer), "lr_scaling": {"rule": "linear", "per": 8}}
    path = folder / "x.yaml"
    path.write_text(yaml.dump(asked), encoding="utf-8")
    return str(path)


def environments(workspaces: list[Workspace]) -> list[dict[str, str]]:
    pairs = zip(by_hand(), workspaces, strict=True)
    return [{**one, "SCALEBOOK_WORKSPACE": str(workspace.root)} for one, workspace in pairs]


def fit(path: str, *more: str) -> int:
    return main(["fit", "-c", path, *more])


@pytest.mark.thorough
def test_one_run_is_recorded_by_the_first_as_of_one_machine(
    workspaces: list[Workspace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    path = written(tmp_path, num_nodes=2, devices=1, max_epochs=2)
    codes = together(environments(workspaces), lambda: fit(path), tmp_path)
    assert codes == [0, 0]
    first, second = workspaces
    assert reader(second).runs() == []
    assert all_jobs(second) == []
    assert list((second.hidden / PARTS).iterdir()) == []
    (job,) = all_jobs(first)
    (record,) = reader(first).runs()
    assert (record.status, record.tags[names.TAG_WORKERS]) == ("FINISHED", "2")
    assert (record.tags[names.TAG_BATCH_GLOBAL], record.tags[names.TAG_LR_SCALED]) == ("16", "0.2")
    assert (job.path / "checkpoints" / "last.ckpt").exists()
    progress = job.progress()
    assert progress is not None
    assert (progress.updates, progress.samples) == (16, 256)

    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(second.root))
    assert fit(written(tmp_path, devices=2, max_epochs=2)) == 0
    (alone,) = reader(second).runs()
    assert {name: record.metrics[name] for name in SAME} == {name: alone.metrics[name] for name in SAME}
    curves = [reader(one).curve(run.id, names.VAL_LOSS) for one, run in ((first, record), (second, alone))]
    assert curves[0].values == curves[1].values


def test_one_run_of_the_parameter_server_is_recorded_by_the_first(
    workspaces: list[Workspace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    """With what all workers have done."""
    monkeypatch.setenv("SCALEBOOK_KEY_FILE", str(tmp_path / "key"))
    path = written(tmp_path, {"class_path": "AsyncPS", "init_args": {"rule": "sync"}}, num_nodes=2, devices=1)
    assert together(environments(workspaces), lambda: fit(path), tmp_path) == [0, 0]
    first, second = workspaces
    assert reader(second).runs() == []
    assert list((second.hidden / PARTS).iterdir()) == []
    (record,) = reader(first).runs()
    assert (record.status, record.tags[names.TAG_WORKERS]) == ("FINISHED", "2")
    assert (record.metrics[names.UPDATES], record.metrics[names.SAMPLES]) == (8, 128)
    key = (tmp_path / "key").read_text().strip()
    written_down = [one for one in tmp_path.rglob("*") if one.is_file() and one.name != "key"]
    assert len(written_down) > 10
    assert not [one for one in written_down if key.encode() in one.read_bytes()]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("strategy", "others", "cause"),
    [
        ("ddp", ["--seed_everything", "5"], "seed_everything: is 1 on node 0"),
        ("ddp", OTHERWISE, OTHER_KEYS),
        ("AsyncPS", OTHERWISE, OTHER_KEYS),
    ],
    ids=["seed", "config", "config of the parameter server"],
)
def test_machines_that_are_started_otherwise_are_refused_and_the_run_says_so(
    workspaces: list[Workspace],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    one_thread: None,
    strategy: str,
    others: list[str],
    cause: str,
) -> None:
    monkeypatch.setenv("SCALEBOOK_KEY_FILE", str(tmp_path / "key"))
    path = written(tmp_path, strategy, num_nodes=2, devices=1)
    first, second = environments(workspaces)
    machines = [
        Machine(first, lambda: fit(path), tmp_path / "first"),
        Machine(second, lambda: fit(path, *others), tmp_path / "second"),
    ]
    try:
        assert [machine.result() for machine in machines] == [2, 2]
    finally:
        for machine in machines:
            machine.end()
    (record,) = reader(workspaces[0]).runs()
    assert record.status == "FAILED"
    assert cause.replace("HOST", socket.gethostname()) in record.tags[names.TAG_CAUSE]


def test_a_mistake_in_the_numbers_is_one_line_and_code_2(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "-c", written(tmp_path, num_nodes=2, devices=1)]) == 2
    assert capsys.readouterr().err.startswith(
        "scalebook: error: trainer.num_nodes: is 2, but the environment names no other node. Start the run on each node"
    )
    assert all_jobs(workspace) == []
