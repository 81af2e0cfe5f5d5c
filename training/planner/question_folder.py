"""A question that a process of its own works on: its request, progress and answer. Loads no torch.

`.scalebook/cache/plans/` holds `answers/` and `targets/` by profile, question and the engine's version, `profiles/` by
the hash of the config that was measured, and `asked/`: a folder for each question, with its process. State is derived
from these.
"""

import hashlib
import json
import shutil
import signal
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

from scalebook.training.base import ConfigError, ProcessId, Workspace, processes
from scalebook.training.base.files import records, yaml
from scalebook.training.experiments import Experiment
from scalebook.training.planner.answers import Answer
from scalebook.training.planner.question import MOST_WORKERS, Question, rules
from scalebook.training.planner.time_to_target import TargetAnswer
from scalebook.training.pricing import Profile, profile_mapping, read_profile

CONFIG: Final = "config.yaml"
KEPT: Final = 100
"""Most answers, and most folders of questions; older ones are removed when another is asked."""
PLANNING: Final = Path(__file__).parent
ENGINE: Final = PLANNING.parent / "engine"


@dataclass(frozen=True)
class PlanRequest:
    """What is asked about a profile (as `profile.as_mapping`), or about a config, whose parts are measured first.

    `config_hash` is "" if there is a profile. `rules` as `question.rules` reads them; without rules, or shards: as in
    the config. With a `target` of `metric` the config is also trained by simulated workers, with `seeds` seeds each.
    """

    profile: dict[str, Any] | None
    config_hash: str
    workers: list[int]
    rules: list[str]
    shards: list[int]
    networks: list[str]
    seed: int = 0
    metric: str = ""
    target: float | None = None
    seeds: int = 1
    split: int = 0

    def question(self) -> Question:
        """The question; ConfigError, naming option and remedy, for what cannot be asked."""
        of_config = self.profile is None
        for option, values in (("--strategies", self.rules or of_config), ("--links", self.networks)):
            if not values:
                raise ConfigError(option, "is empty", "Choose at least one.")
        if self.split and not 2 <= self.split <= MOST_WORKERS:
            raise ConfigError("--split", f"is {self.split}", f"Use a number from 2 to {MOST_WORKERS}.")
        question = Question(
            self.workers,
            [rule for text in self.rules for rule in rules(text)],
            self.shards,
            self.networks,
            self.seed,
        )
        if not of_config:
            question.check()
        return question


@dataclass(frozen=True)
class PlanProgress:
    """`done` of about `whole` simulations, and what is done now; 0 of 0 while parts are measured."""

    done: int
    whole: int
    words: str


@dataclass(frozen=True)
class PlanFailure:
    """Why there is no answer, as a `Problem` has it."""

    key: str
    message: str
    remedy: str


class QuestionFolder:
    """The folder of one question. Any process may read it; the browser's side starts it."""

    def __init__(self, workspace: Workspace, request: PlanRequest) -> None:
        self.workspace, self.request = workspace, request

    @classmethod
    def at(cls, folder: Path) -> "QuestionFolder":
        """The question that was started in `folder`, which holds its request."""
        request = records.load(folder / "request.json", PlanRequest)
        assert request is not None, folder
        return cls(Workspace(folder.parents[4]), request)

    @property
    def _plans(self) -> Path:
        return self.workspace.cache / "plans"

    @cached_property
    def folder(self) -> Path:
        return self._plans / "asked" / _key(asdict(self.request))

    def has_config(self) -> bool:
        return (self.folder / CONFIG).exists()

    def config(self) -> dict[str, Any]:
        """The config to measure, if the request has no profile."""
        config = records.mapping(self.folder / CONFIG)
        assert config is not None, "`start` was given one"
        return config

    # --- what is known -----------------------------------------------------------------------------------------------

    def profile(self) -> Profile | None:
        """The request's profile, or the measured one; None before it was measured."""
        if self.request.profile is not None:
            return read_profile(self.request.profile)
        written = records.peek(self._measured, dict[str, Any])
        return None if written is None else read_profile(written)

    def answer(self) -> Answer | None:
        """The answer; None before there is one."""
        profile = self.profile()
        return None if profile is None else records.peek(self._answer(profile), Answer)

    def target_answer(self) -> TargetAnswer | None:
        """The answer to the target; None before there is one, and without a target."""
        profile = self.profile() if self.request.target is not None else None
        return None if profile is None else records.peek(self._target(profile), TargetAnswer)

    def running(self) -> PlanProgress | None:
        """The progress of the process; None if none works on the question."""
        if self._process() is None:
            return None
        return records.peek(self.folder / "progress.json", PlanProgress) or PlanProgress(0, 0, "starting")

    def failure(self) -> PlanFailure | None:
        """Why the last process gave no answer; None if it gave one, works, or was stopped."""
        return None if self.running() else records.peek(self.folder / "failure.json", PlanFailure)

    @property
    def _measured(self) -> Path:
        return self._plans / "profiles" / f"{self.request.config_hash}.json"

    def _answer(self, profile: Profile) -> Path:
        question = replace(self.request, metric="", target=None, seeds=1)
        return self._plans / "answers" / f"{_key(_deciding(question, profile))}.json"

    def _target(self, profile: Profile) -> Path:
        return self._plans / "targets" / f"{_key(_deciding(self.request, profile))}.json"

    # --- starting and stopping ---------------------------------------------------------------------------------------

    def start(self, experiment: Experiment | None = None, *, anew: bool = False) -> None:
        """Start a process for the question, unless one works on it. `experiment` is what it measures, with
        `anew` once more.

        ConfigError for what cannot be asked.
        """
        self.request.question()
        if self.running() is not None:
            return
        if anew:
            self._measured.unlink(missing_ok=True)
        _make_room(self._plans)
        for name in ("progress.json", "failure.json"):
            (self.folder / name).unlink(missing_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        if experiment is not None:
            records.put(self.folder / CONFIG, yaml.dump(experiment.written).encode())
        records.save(self.folder / "request.json", self.request)
        with (self.folder / "log.txt").open("wb") as log:
            process = processes.start_detached(
                log, "scalebook.training.planner.planner_process", str(self.folder.resolve())
            )
        records.save(self.folder / "process.json", ProcessId.of(process.pid))

    def stop(self) -> None:
        """Ask the process and its measurement to end; without effect if none works."""
        if (process := self._process()) is not None:
            process.send(signal.SIGTERM)

    def _process(self) -> ProcessId | None:
        """Which works on it: it writes the log, whatever a record that was found in the folder says."""
        process = records.peek(self.folder / "process.json", ProcessId)
        return process if process is not None and process.writes_to([self.folder / "log.txt"]) else None

    # --- of the process ----------------------------------------------------------------------------------------------

    def write_progress(self, done: int, whole: int, words: str) -> None:
        records.save(self.folder / "progress.json", PlanProgress(done, whole, words))

    def fail(self, error: ConfigError) -> None:
        problem = error.problem
        records.save(self.folder / "failure.json", PlanFailure(problem.key, problem.message, problem.fix))

    def keep_profile(self, profile: Profile) -> None:
        self._measured.parent.mkdir(parents=True, exist_ok=True)
        records.save(self._measured, profile_mapping(profile))

    def keep_answer(self, profile: Profile, answer: Answer) -> None:
        path = self._answer(profile)
        path.parent.mkdir(parents=True, exist_ok=True)
        records.save(path, answer)

    def keep_target(self, profile: Profile, answer: TargetAnswer) -> None:
        path = self._target(profile)
        path.parent.mkdir(parents=True, exist_ok=True)
        records.save(path, answer)


def measured(workspace: Workspace, config_hash: str) -> Profile | None:
    """The measured profile of a config on this machine; None before it was measured."""
    return QuestionFolder(workspace, PlanRequest(None, config_hash, [], [], [], [])).profile()


def _deciding(request: PlanRequest, profile: Profile) -> dict[str, Any]:
    """All that decides an answer: another version of the engine gives another."""
    return {**asdict(request), "profile": _as_read(profile), "engine": engine_version()}


def _as_read(profile: Profile) -> dict[str, Any]:
    """The same for the profile that was measured and the one that was read back, whose whole numbers are floats."""
    return profile_mapping(read_profile(profile_mapping(profile)))


def _key(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _make_room(plans: Path) -> None:
    """Remove the oldest answers and folders; one whose process works is new."""
    for name in ("answers", "targets", "asked"):
        held = sorted((plans / name).glob("*"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in held[KEPT:]:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


@cache
def engine_version() -> str:
    """Hash of the engine, the planner and its measured ranges; the same in any process."""
    digest = hashlib.sha256()
    for path in _files():
        digest.update(f"{path.relative_to(PLANNING.parent)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _files() -> Iterator[Path]:
    for folder in (ENGINE, PLANNING):
        yield from sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".json"))
