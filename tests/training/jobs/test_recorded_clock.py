"""The clock of a virtual run made of what an earlier run has measured."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import records
from scalebook.training.engine.coordination.measures import Timings
from scalebook.training.engine.rules.clock_settings import read_clock
from scalebook.training.engine.rules.duration_summary import DurationSummary
from scalebook.training.jobs.job_folder import JobFolder, Result
from scalebook.training.jobs.recorded_clock import FEWEST, read_recorded
from scalebook.training.tracking import names

TIMINGS = Timings(
    [DurationSummary(300, 0.02, 0.0, [0.02] * 100), DurationSummary(100, 0.06, 0.0, [0.06] * 100), None],
    DurationSummary(400, 0.001, 0.5, [0.0005] * 50 + [0.0015] * 50),
)


def config(**clock: Any) -> dict[str, Any]:
    arguments = {"workers": 8, "host": "virtual", "clock": clock}
    return {"trainer": {"strategy": {"class_path": "AsyncPS", "init_args": arguments}}}


def clock_of(config_: dict[str, Any]) -> Any:
    return config_["trainer"]["strategy"]["init_args"]["clock"]


@pytest.fixture
def job(tmp_path: Path) -> JobFolder:
    folder = JobFolder(tmp_path / "abc123")
    folder.path.mkdir()
    folder.write(Result("finished", time.time()))
    records.save(folder.path / names.TIMINGS_JSON, TIMINGS)
    return folder


def found(job: JobFolder, wanted: str) -> JobFolder:
    if not job.id.startswith(wanted):
        raise ConfigError(wanted, "is not a job of this folder", "`scalebook jobs list` shows all jobs.")
    return job


def test_the_values_are_written_where_the_run_is_named(job: JobFolder) -> None:
    asked = config(gradient_s={"kind": "recorded", "run": "abc"}, server_s={"kind": "recorded", "run": "abc"})
    done = clock_of(read_recorded(asked, partial(found, job)))
    assert clock_of(asked) == {name: {"kind": "recorded", "run": "abc"} for name in ("gradient_s", "server_s")}
    assert {**done["gradient_s"], "values": None} == {
        "kind": "recorded", "run": "abc123", "mean": 0.03, "cv": 0.57735, "values": None,
    }  # fmt: skip
    assert done["gradient_s"]["values"] == [0.02] * 75 + [0.06] * 25
    assert (done["server_s"]["mean"], done["server_s"]["values"][::99]) == (0.001, [0.0005, 0.0015])
    read_clock(done, 8).check(8)


def test_of_one_worker_alone(job: JobFolder) -> None:
    asked = config(gradient_s={"kind": "recorded", "run": "abc123", "worker": 1}, stragglers={"3": 2.0})
    done = clock_of(read_recorded(asked, partial(found, job)))
    assert (done["gradient_s"]["mean"], done["gradient_s"]["worker"]) == (0.06, 1)
    assert done["stragglers"] == {"3": 2.0}


def test_what_has_its_values_stays_where_the_run_is_no_more(job: JobFolder) -> None:
    once = read_recorded(config(gradient_s={"kind": "recorded", "run": "abc"}), partial(found, job))

    def gone(run: str) -> JobFolder:
        raise ConfigError(run, "is not a job", "")

    assert read_recorded(once, gone) == once
    for nothing in ({"gradient_s": 0.1}, {"gradient_s": {"kind": "gamma", "mean": 0.1, "cv": 0.2}}):
        assert read_recorded(config(**nothing), gone) == config(**nothing)
    assert read_recorded({"trainer": {"strategy": "ddp"}}, gone) == {"trainer": {"strategy": "ddp"}}


def _few(job: JobFolder) -> None:
    few = DurationSummary(FEWEST - 1, 0.02, 0.0, [0.02] * 100)
    records.save(job.path / names.TIMINGS_JSON, Timings([few], None))


def _without(job: JobFolder) -> None:
    (job.path / names.TIMINGS_JSON).unlink()


def _torn(job: JobFolder) -> None:
    (job.path / names.TIMINGS_JSON).write_text("{")


def _unended(job: JobFolder) -> None:
    (job.path / JobFolder.FILES[Result]).unlink()


@pytest.mark.parametrize(
    ("spoil", "part", "said"),
    [
        (
            None,
            {"run": "zzz"},
            r"gradient_s\.run: zzz is not a job of this folder\. Use a finished run of AsyncPS with real",
        ),
        (
            _few,
            {"run": "abc"},
            r"gradient_s\.run: abc123 has timed 49 gradients in a row, fewer than 50\. Use a finished run",
        ),
        (_without, {"run": "abc"}, r"gradient_s\.run: abc123 has no timings, because it had no real workers that push"),
        (_torn, {"run": "abc"}, r"gradient_s\.run: .*timings\.json is broken"),
        (
            _unended,
            {"run": "abc"},
            r"gradient_s\.run: abc123 is waiting, but a run records its timings only when it ends",
        ),
        (None, {"run": "abc", "worker": 3}, r"gradient_s\.worker: abc123 had no worker 3\. Use 0 to 2, or null"),
        (None, {"run": "abc", "worker": 2}, r"gradient_s\.run: abc123 has timed 0 gradients in a row"),
    ],
)
def test_a_run_that_cannot_be_taken_is_refused_by_key_and_remedy(
    job: JobFolder, spoil: Callable[[JobFolder], None] | None, part: dict[str, Any], said: str
) -> None:
    if spoil is not None:
        spoil(job)
    with pytest.raises(ConfigError, match=r"^trainer\.strategy\.init_args\.clock\." + said):
        read_recorded(config(gradient_s={"kind": "recorded", **part}), partial(found, job))


def test_servers_have_no_workers(job: JobFolder) -> None:
    asked = config(gradient_s=0.1, server_s={"kind": "recorded", "run": "abc", "worker": 0})
    with pytest.raises(ConfigError, match=r"clock\.server_s\.worker: has no effect.* Remove it\."):
        read_recorded(asked, partial(found, job))
