import os
from pathlib import Path

import pytest

from scalebook.training.base.workspace import Workspace
from scalebook.training.tracking.logger import Axes, RunLogger
from scalebook.training.tracking.run_reader import RunReader
from scalebook.training.tracking.run_start import experiment_id, open_store


@pytest.fixture
def logger(workspace: Workspace, tmp_path: Path) -> RunLogger:
    client = open_store(workspace)
    run_id = client.create_run(experiment_id(client, workspace, "test")).info.run_id
    return RunLogger(workspace.tracking_uri(), run_id, tmp_path)


def history(logger: RunLogger, metric: str) -> list[tuple[int, float]]:
    points = logger.experiment.get_metric_history(logger.run_id, metric)
    return sorted((point.step, point.value) for point in points)


def test_each_new_step_gets_its_axes_once(logger: RunLogger) -> None:
    at = Axes(10, 80, 0.5)
    logger.axes = lambda: at
    logger.log_metrics({"loss": 1.0}, step=3)
    logger.log_metrics({"val": 2.0}, step=3)
    at = Axes(20, 160, 1.0, bytes=96.0)
    logger.log_metrics({"loss": 0.5}, step=4)
    logger.finalize("success")
    assert history(logger, "loss") == [(10, 1.0), (20, 0.5)]
    assert history(logger, "val") == [(10, 2.0)]
    assert history(logger, "samples") == [(10, 80.0), (20, 160.0)]
    assert history(logger, "seconds") == [(10, 0.5), (20, 1.0)]
    assert history(logger, "updates") == [], "they are the step"
    assert history(logger, "bytes") == [(20, 96.0)], "where nobody counts them there is none"


def test_values_of_the_whole_run_are_at_step_0(logger: RunLogger) -> None:
    logger.axes = lambda: Axes(10, 80, 0.5)
    logger.log_metrics({"loss": 1.0, "best/loss": 0.5, "final/loss": 1.0})
    logger.finalize("success")
    assert history(logger, "loss") == [(10, 1.0)]
    assert (history(logger, "best/loss"), history(logger, "final/loss")) == ([(0, 0.5)], [(0, 1.0)])


def test_samples_that_are_not_yet_in_an_update_are_told_too(logger: RunLogger) -> None:
    """The last gradients of a rule that gathers may make no update of their own."""
    at = Axes(10, 80, 0.5)
    logger.axes = lambda: at
    logger.log_metrics({"loss": 1.0})
    at = Axes(10, 112, 0.75)
    logger.log_metrics({"best/loss": 1.0})
    at = Axes(9, 200, 0.4)  # of a validation that began before
    logger.log_metrics({"val": 1.0})
    logger.finalize("success")
    assert history(logger, "samples") == [(10, 80.0), (10, 112.0)]
    run = logger.experiment.get_run(logger.run_id)
    assert run.data.metrics["samples"] == 112
    curve = RunReader(logger.tracking_uri).curve(logger.run_id, "loss")
    assert (curve.samples, curve.seconds) == ([80.0], [0.5]), "where it was logged"


def test_a_point_keeps_its_samples_if_training_goes_on_before_the_next_update(logger: RunLogger) -> None:
    """As with local steps: other metrics are logged later at the same number of updates."""
    reader = RunReader(logger.tracking_uri)
    for samples, name in ((64, "val"), (91, "loss"), (95, "other"), (95, "another")):
        logger.axes = lambda samples=samples: Axes(2, samples, samples / 10, bytes=2.0 * samples)
        logger.log_metrics({name: 1.0})
    logger.finalize("success")
    curves = reader.curves(logger.run_id, ["val", "loss", "other", "another"])
    assert [curve.samples for curve in curves] == [[64.0], [91.0], [95.0], [95.0]]
    assert [(curve.seconds, curve.bytes) for curve in curves[:2]] == [([6.4], [128.0]), ([9.1], [182.0])]
    assert {curve.metric: curve for curve in reader.every_curve(logger.run_id)} == {c.metric: c for c in curves}


def test_bytes_that_move_after_the_last_update_are_told_too(logger: RunLogger) -> None:
    """Each worker takes the parameters once more. Where none have moved there is no point."""
    at = Axes(0, 0, 0.0, bytes=0.0)
    logger.axes = lambda: at
    logger.log_metrics({"loss": 2.0})
    at = Axes(10, 80, 0.5, bytes=64.0)
    logger.log_metrics({"loss": 1.0})
    at = Axes(10, 80, 0.75, bytes=96.0)
    logger.log_metrics({"best/loss": 1.0})
    logger.finalize("success")
    assert history(logger, "bytes") == [(10, 64.0), (10, 96.0)]
    assert RunReader(logger.tracking_uri).curve(logger.run_id, "loss").bytes == [0.0, 64.0]


def test_lightnings_epoch_is_not_recorded_and_a_modules_own_is(logger: RunLogger) -> None:
    """Lightning adds it, counted from 0, to what a module logs with `self.log`."""
    logged = ["loss"]
    logger.axes, logger.logged = lambda: Axes(10, 80, 0.5), lambda: logged
    logger.log_metrics({"loss": 1.0, "epoch": 19})
    logger.finalize("success")
    assert (history(logger, "loss"), history(logger, "epoch")) == ([(10, 1.0)], [])
    logger.log_metrics({"mine": 1.0, "epoch": 4.0})  # by the module, straight to its logger
    logged = ["loss", "epoch"]
    logger.log_metrics({"loss": 1.0, "epoch": 5.0})
    logger.finalize("success")
    assert history(logger, "epoch") == [(10, 4.0), (10, 5.0)]


def test_without_axes_the_step_is_lightnings(logger: RunLogger) -> None:
    logger.log_metrics({"loss": 1.0}, step=3)
    logger.finalize("success")
    assert history(logger, "loss") == [(3, 1.0)]


def test_it_writes_from_a_fork_of_a_process_that_has_used_the_store(logger: RunLogger) -> None:
    """The parent's connection is not touched: it works afterwards."""
    assert history(logger, "loss") == []
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            logger.log_metrics({"loss": 4.0}, step=1)
            logger.finalize("success")
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert history(logger, "loss") == [(1, 4.0)]


def test_an_artifact_is_uploaded(logger: RunLogger, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("hello", encoding="utf-8")
    logger.log_artifact(tmp_path / "note.txt")
    assert [one.path for one in logger.experiment.list_artifacts(logger.run_id)] == ["note.txt"]
