"""Every record of a workspace as torn, emptied, overwritten or of a later version: nothing else is touched by it."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from scalebook.app.runs import data as runs
from scalebook.app.runs import records as run_records
from scalebook.app.search import data as searches
from scalebook.app.search_setup.data import SavedSetup
from scalebook.app.serving.addresses import Addresses
from scalebook.app.shared import drafts
from scalebook.app.shared.drafts import SavedDraft
from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import records
from scalebook.training.base.files.record_folder import forget_records
from scalebook.training.base.files.records import VERSION
from scalebook.training.base.processes import ProcessId
from scalebook.training.base.trust import JOB as SIGNED
from scalebook.training.base.trust import sign
from scalebook.training.base.workspace import Workspace
from scalebook.training.cli import jobs
from scalebook.training.cli import search as search_command
from scalebook.training.experiments import catalogue
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.search.definition import body_of
from scalebook.training.jobs import job_requests, waiting_jobs
from scalebook.training.jobs.executor import LocalHandle
from scalebook.training.jobs.job_folder import JobFolder, JobRequest, JobStart, Progress, Result
from scalebook.training.jobs.supervisor_handle import Status, SupervisorLock, status
from scalebook.training.search import search_requests
from scalebook.training.search.driver.trial_jobs import CurveTail
from scalebook.training.search.search_folder import (
    DriverProcess,
    SearchFolder,
    SearchProgress,
    SearchRequest,
    SearchResult,
    all_searches,
)
from scalebook.training.search.study import study_reader
from scalebook.training.search.study.study import Study
from scalebook.training.supervisor.job_watch import JobLimits
from scalebook.training.supervisor.lost_jobs import LostJobRecorder
from scalebook.training.supervisor.search_drivers import SearchDrivers
from scalebook.training.supervisor.supervisor_loop import Starter, SupervisorLoop
from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import RunRecord
from tests.app.described import description
from tests.app.searches import spec
from tests.training.jobs.machines import Cores

pytestmark = pytest.mark.long

HURT = "b" * 32
"""The job, and the search, whose records are spoilt."""
WELL = "a" * 32
ALIVE = "c" * 32
CUTS = 20
PARTS = 16
"""Into which the cases of one record are dealt out; a commit runs the first."""
SPEC = replace(spec(), trials=3)


def job(workspace: Workspace, name: str, ended: bool, process: ProcessId | None = None) -> JobFolder:
    made = JobFolder(workspace.jobs / name)
    made.path.mkdir()
    records.put(made.config, b"model: {class_path: scalebook.training.zoo.models.PixelCNN}\n")
    made.write(JobRequest(name, 1.5, "e", workspace.tracking_uri(), 3, 2, cell="cell", name=f"run {name[0]}"))
    sign(made.path, name, SIGNED)
    if process is not None:
        made.write(JobStart(LocalHandle(process), 2.0, [0]))
    made.write(Progress(3.0, "training", 10, 640, 1.0, 1, 0.5, 4.0, {"val/loss": 0.25}))
    point = {"updates": 1, "samples": 32, "seconds": 0.5, "metrics": {"val/loss": 1.0}}
    made.curve.write_text(f"{json.dumps(point)}\n", encoding="utf-8")
    shard = {"worker": 0, "section": 0, "shard": 0, "applied": 1, "dropped": 0, "duplicates": 0}
    told = {"counts": [[1, 2]], "workers": [{"wait": 1.0}], "shards": [{**shard, "age_s": None, "drift": 1.0}]}
    records.save(made.path / names.PUSHES_JSON, told)
    if ended:
        made.write(Result("finished", 4.0))
    return made


def search(workspace: Workspace, name: str) -> SearchFolder:
    made = SearchFolder(workspace.studies / name)
    made.path.mkdir()
    storage = f"journal:{made.path / 'study.journal'}"
    made.write(SearchRequest(name, 1.0, f"search {name[0]}", "e", workspace.tracking_uri(), "same", storage))
    made.write_body(body_of(SPEC))
    made.write(DriverProcess(ProcessId(2**22 - 1, 1, "gone"), 1.0))
    made.write(SearchProgress(1.0, 1, 0, 3, 0.5, 0))
    made.write(SearchResult("finished", 2.0, "3 trials"))
    search_requests.give(made, [{"batch_size": 64}])
    study = Study.open(storage, made.request().study, SPEC)
    study.finish(study.ask().number, [0.5])
    study.close()
    return made


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The hidden folder of a workspace with three jobs, two searches and all else that leaves a record."""
    workspace = Workspace(tmp_path_factory.mktemp("torn")).create()
    gone = ProcessId(2**22 - 1, 1, "gone")
    job(workspace, WELL, ended=False)
    job(workspace, HURT, ended=True, process=gone)
    job(workspace, ALIVE, ended=False, process=ProcessId.of())
    for name in (WELL, HURT):
        search(workspace, name)
    records.save(workspace.hidden / "supervisor.json", Status(gone, "ready"))
    (workspace.hidden / "owners").mkdir()
    records.save(workspace.hidden / "owners" / "1.json", gone)
    Addresses("http://127.0.0.1:8501", None, [gone]).write(workspace)
    drafts.save(workspace, SavedDraft("n", "c", "x", 1, {"model": 1}))
    drafts.save(workspace, SavedSetup("n", "c", "x", "y", 1, {"space": {}}))
    records.save(workspace.cache / f"describe-{'0' * 16}.json", description())
    return workspace.root


JOB, SEARCH = f"jobs/{HURT}", f"studies/{HURT}"
FILES = (
    *(f"{JOB}/{name}" for name in ("job.json", "process.json", "progress.json", "result.json", "config.yaml",
                                   "curve.jsonl", "pushes.json")),
    *(f"{SEARCH}/{name}" for name in ("search.json", "search.yaml", "driver.json", "progress.json", "result.json",
                                      "study.journal", "given/*")),
    "supervisor.json", "owners/1.json", "ui.json", "cache/describe-*", "cache/draft-*", "cache/search-draft-*",
)  # fmt: skip
LISTED = (*(f"{JOB}/{name}.json" for name in ("job", "process", "progress", "result")),
          *(f"{SEARCH}/{name}" for name in ("search.json", "search.yaml", "driver.json", "progress.json",
                                            "result.json")))  # fmt: skip
OTHER = ("[]", "{}", "null", "true", "3", '"words"', "[1, 2]", '{"version": "x"}', "[" * 3000, "1" * 5000, "NaN")
BINARY = (b"\0" * 300, b"\x80\x81\xfe\xff" * 50, b"\x1f\x8b\x08" + bytes(range(256)))


def spoilt(content: bytes) -> Iterator[tuple[str, bytes]]:
    """What may lie there instead, each with its name."""
    for cut in range(CUTS):
        yield f"cut at {cut}/{CUTS}", content[: len(content) * cut // CUTS]
    for number, one in enumerate(BINARY):
        yield f"binary {number}", one
    for text in OTHER:
        yield f"other {text[:12]}", text.encode()
    try:
        told = json.loads(content)
    except ValueError:
        yield "an unknown operation", content + b'{"op_code": 99, "worker_id": "x"}\n'
        yield "a key less", content + b'{"op_code": 4}\n'
        return
    yield "newer", json.dumps({**told, "version": VERSION + 1}).encode()
    for key in [key for key in told if key != "version"][:12]:
        yield f"without {key}", json.dumps({name: value for name, value in told.items() if name != key}).encode()
        instead: tuple[object, ...] = ([1], -(10**400), {"a": {}})
        for wrong in instead:
            yield f"{key} is {str(wrong)[:6]}", json.dumps({**told, key: wrong}).encode()


@pytest.fixture
def workspace(pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    """A copy, whose one job that runs is this process's; nothing is started in it."""
    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(tmp_path))
    monkeypatch.setattr(Starter, "prepare", lambda self, fresh: False)
    monkeypatch.setattr(SearchDrivers, "_drive", lambda self, folder: None)
    monkeypatch.setattr(LostJobRecorder, "poll", lambda self: None)
    monkeypatch.setattr(catalogue, "content_hash", lambda workspace: "0" * 16)
    done = subprocess.CompletedProcess([], 0, description().to_json(), "")
    monkeypatch.setattr(subprocess, "run", lambda *told, **more: done)
    monkeypatch.setattr(catalogue, "_run", lambda *told: done.stdout)
    shutil.copytree(pristine / ".scalebook", tmp_path / ".scalebook")
    made = Workspace(tmp_path)
    for one in all_searches(made):
        one.write(replace(one.request(), storage=f"journal:{one.path / 'study.journal'}"))
    shutil.copytree(made.hidden, tmp_path / "kept")
    with (made.jobs / ALIVE / "process.json").open("ab"):
        yield made


def restored(workspace: Workspace, pattern: str) -> None:
    """What was hurt, and what all share, as it was; nothing is remembered of it."""
    for part in {"owners", *(part for part in (JOB, SEARCH, "cache") if pattern.startswith(part))}:
        shutil.rmtree(workspace.hidden / part)
        shutil.copytree(workspace.root / "kept" / part, workspace.hidden / part)
    for name in ("supervisor.json", "ui.json"):
        shutil.copy(workspace.root / "kept" / name, workspace.hidden / name)
    (workspace.hidden / "supervisor.lock").unlink(missing_ok=True)
    study_reader.forget()
    forget_records()


def test_there_are_a_thousand_cases(workspace: Workspace) -> None:
    contents = [path.read_bytes() for pattern in FILES for path in workspace.hidden.glob(pattern)]
    assert len(contents) == len(FILES)
    assert sum(len(list(spoilt(content))) for content in contents) >= 1000


@pytest.mark.sampled
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.thorough) for part in range(1, PARTS))])
@pytest.mark.parametrize("pattern", FILES)
def test_a_spoilt_record_stops_nothing_else(
    workspace: Workspace, pattern: str, part: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = workspace.hidden.glob(pattern)
    before = path.read_bytes()
    wrong: list[str] = []
    cases: list[tuple[int, tuple[str, bytes | None]]] = [*list(enumerate(spoilt(before)))[part::PARTS]]
    if pattern in LISTED and part == 0:
        cases += enumerate([("a folder", None), ("a pipe", None)])
    for number, (what, content) in cases:
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        elif what == "a folder":
            path.mkdir()
        else:
            os.mkfifo(path)
        try:
            everything_else(workspace)
            if content == b"" or number % 5 == 0:
                listed(workspace, path if pattern in LISTED and content == b"" else None, capsys)
        except Exception as error:  # noqa: BLE001 - all that goes wrong is shown at once
            wrong.append(f"{what}: {type(error).__name__}: {error}"[:300])
        said = capsys.readouterr()
        wrong += [f"{what}: a traceback: {said.out}{said.err}"] if "Traceback" in said.out + said.err else []
        restored(workspace, pattern)
    assert wrong == []


def listed(workspace: Workspace, broken: Path | None, capsys: pytest.CaptureFixture[str]) -> None:
    """The commands show what is well, and the broken one with its path."""
    assert jobs.main(["list"]) == 0
    assert search_command.main(["list"]) == 0
    said = capsys.readouterr().out
    assert f"{WELL[:8]}  waiting" in said
    assert f"{WELL[:8]}  finished" in said
    assert broken is None or f"broken: {broken}: is broken (empty)" in said
    assert jobs.main(["list", "--json"]) == 0
    assert {WELL, ALIVE} <= {one["id"] for one in json.loads(capsys.readouterr().out)}


def everything_else(workspace: Workspace) -> None:
    """All that reads records goes on, and what is not hurt is as it was."""
    assert isinstance(catalogue.describe(workspace), Description)
    states = {one.id: one.state() for one in job_requests.all_jobs(workspace)}
    assert (states[WELL], states[ALIVE]) == ("waiting", "running")
    turns = SupervisorLoop(SupervisorLock(workspace), JobLimits(poll_s=0.0), Cores(0, 1), "none", ())
    turns.run_once()
    turns.run_once()
    assert WELL in turns.open
    assert ALIVE in turns.watches
    found = status(workspace)
    assert found is not None
    assert found.process == ProcessId.of()
    assert waiting_jobs.waiting_reasons(workspace)[WELL]
    _pages(workspace)
    hurt = JobFolder(workspace.jobs / HURT)
    with suppress(ConfigError):
        hurt.content()
    with pytest.raises(ConfigError):  # it has no checkpoint, or is no job any more
        job_requests.resume(workspace, hurt, description())
    assert len(CurveTail(hurt).news()) <= 1
    assert len(search_requests.waiting_points(SearchFolder(workspace.studies / HURT))) <= 1


def _pages(workspace: Workspace) -> None:
    for name in (WELL, HURT, ALIVE):
        view = runs.view(workspace, RunRecord(name, name[0], "0", "RUNNING", 1.0, None))
        assert view.cause + view.advice + view.failure + str(view.seconds)
        run_records.pushes_in_folder(workspace.jobs / name)
    assert run_records.pushes_in_folder(workspace.jobs / WELL) is not None
    shown = {one.id: one for one in searches.views(workspace, 10)}
    assert (shown[WELL].state, shown[WELL].trials) == ("finished", 3)
    for one in shown.values():
        assert isinstance(one.trouble + one.best, str)
        with suppress(ConfigError):
            study_reader.read_study(one.request.storage, one.request.study, SPEC)
    well = shown[WELL].request
    assert [one.state for one in study_reader.read_study(well.storage, well.study, SPEC)] == ["finished"]
    searches.find(workspace, HURT)
    Addresses.read(workspace)
    drafts.load(workspace, SavedDraft, "n", "c")
    drafts.load(workspace, SavedSetup, "n", "c\nx")


def test_what_cannot_be_read_is_a_failure_with_its_path(workspace: Workspace) -> None:
    hurt = JobFolder(workspace.jobs / HURT)
    (hurt.path / "result.json").write_bytes(b"")
    result = hurt.result()
    assert result is not None
    assert (hurt.state(), result.failure) == ("failed", "broken record")
    assert result.cause == f"{hurt.path / 'result.json'} is broken (empty)"
    assert result.advice == "Restore the file from a copy, or run the experiment again."


def test_a_record_of_a_newer_version_is_said_to_be_newer_and_left_alone(workspace: Workspace) -> None:
    hurt = JobFolder(workspace.jobs / HURT)
    (hurt.path / "result.json").unlink()
    path = hurt.path / "process.json"
    newer = json.dumps({**json.loads(path.read_bytes()), "version": 9})
    path.write_text(newer, encoding="utf-8")
    (error,) = hurt.broken()
    assert error.newer
    why = "was written by a newer Scalebook (it has version 9, but this one reads up to 1)"
    assert str(error) == f"{path}: {why}. Use that version here."
    turns = SupervisorLoop(SupervisorLock(workspace), JobLimits(poll_s=0.0), Cores(0), "none", ())
    turns.run_once()
    assert hurt.state() == "failed"
    assert not (hurt.path / "result.json").exists()
    assert path.read_text(encoding="utf-8") == newer


def test_a_job_whose_owner_cannot_be_read_is_closed_for_it(workspace: Workspace) -> None:
    hurt = JobFolder(workspace.jobs / HURT)
    (hurt.path / "result.json").unlink()
    (hurt.path / "process.json").write_bytes(b"\0" * 200)
    turns = SupervisorLoop(SupervisorLock(workspace), JobLimits(poll_s=0.0), Cores(0), "none", ())
    turns.run_once()
    result = records.load(hurt.path / "result.json", Result)
    assert result is not None
    assert "process.json is broken (not JSON" in result.cause
    assert HURT not in turns.open
    assert hurt.unrecorded.exists()  # MLflow is told, too


def test_a_job_is_met_once_its_request_is_mended(workspace: Workspace) -> None:
    path = workspace.jobs / WELL / "job.json"
    content = path.read_bytes()
    path.write_bytes(content[:50])
    forget_records()
    turns = SupervisorLoop(SupervisorLock(workspace), JobLimits(poll_s=0.0), Cores(0), "none", ())
    turns.run_once()
    assert WELL not in turns.open
    path.write_bytes(content)
    turns._looked_around -= 10
    turns.run_once()
    assert WELL in turns.open
