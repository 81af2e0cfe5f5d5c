"""Questions whose runs are played: recorded at once, as a formula has them, instead of trained."""

import math
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.asking import asking, sizes
from scalebook.training.asking.answer import AnswerReader
from scalebook.training.asking.answer_rows import Findings
from scalebook.training.asking.asking import Asking
from scalebook.training.base.trust import SEARCH, sign
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.identity import config_hash
from scalebook.training.experiments.search.definition import body_of, identity, read_search
from scalebook.training.experiments.search.point import resolve
from scalebook.training.jobs import job_requests, supervisor_handle
from scalebook.training.jobs.job_folder import JobFolder, Progress, Result
from scalebook.training.notebook import edit, store
from scalebook.training.notebook.cells import AnswerCell, Notebook
from scalebook.training.search import search_requests
from scalebook.training.search.search_folder import SearchFolder, SearchProgress, SearchRequest, SearchResult
from scalebook.training.search.study.study import Study
from scalebook.training.tracking.run_reader import RunReader
from scalebook.training.tracking.run_start import open_store
from tests.training.tracking.recorded import record

CONFIG: dict[str, Any] = {
    "seed_everything": 1,
    "model": {"class_path": "MLPClassifier", "init_args": {"hidden": 16}},
    "data": {"class_path": "Digits", "init_args": {"batch_size": 32, "limit": 128}},
    "optimizer": {"class_path": "SGD", "init_args": {"lr": 0.1}},
    "trainer": {"accelerator": "cpu", "devices": 1, "max_epochs": 20},
}
Curve = Callable[[Experiment, int], Sequence[float] | None]
"""The validations of a run of an experiment with a seed; None if it diverges."""


def falling(
    experiment: Experiment, seed: int, *, best: float = 0.1, times: float = 1.0, spread: float = 0.1
) -> list[float]:
    """A loss that falls with the inverse of time, at its best rate the fastest; seeds differ by `spread`."""
    rate = experiment.rate.requested or best
    luck = random.Random(f"{experiment.strategy.name} {rate} {seed}").gauss(0, spread)
    takes = math.exp(0.5 * math.log(rate / best) ** 2 + luck)
    return [1 / (1 + step / takes) for step in range(1, 21)]


class Player:
    """Plays the runs and searches of questions. `crash_at`: the call of ours that ends the process, counted from 1."""

    def __init__(self, workspace: Workspace, description: Description, patch: pytest.MonkeyPatch) -> None:
        self.workspace, self.description = workspace, description
        self.curve: Curve = falling
        self.metric = "val/loss"
        self.client = open_store(workspace)
        self.calls, self.crash_at, self.runs = 0, 0, 0
        self.took_s, self.why = 1.0, "train_loss became nan"
        self.put = store.save
        patch.setattr(sizes, "PLANS", ((3, 3),))
        patch.setattr(asking, "MOST_SEEDS", 5)
        patch.setattr(asking, "PLANNED_FROM_S", math.inf)
        patch.setattr(job_requests, "submit", self.submit)
        patch.setattr(search_requests, "start", self.search)
        patch.setattr(store, "save", self.save)
        patch.setattr(supervisor_handle, "hold_supervisor", _no_supervisor)

    def write(self, question: str, name: str = "n.md", budget: float = 3600.0, **more: Any) -> Path:
        """A notebook with the experiments `base` and `other`, and the question `ask` about them."""
        stored = store.create(self.workspace, name.removesuffix(".md"))
        nb = edit.put_experiment(stored.notebook, "base", more.pop("config", CONFIG))
        nb = edit.put_experiment(nb, "other", more.pop("against_config", {**CONFIG, "seed_everything": 7}))
        if question == "a-or-b":
            more["against"] = "other"
        nb = edit.put_answer(nb, AnswerCell("", "ask", question, "base", budget_s=budget, **more))
        return Path(self.put(stored, nb).path)

    def asking(self, path: Path) -> Asking:
        return Asking(path, "ask", self.description)

    def findings(self, path: Path) -> Findings:
        nb = store.read(path).notebook
        reader = AnswerReader(self.workspace, RunReader(self.workspace.tracking_uri()), path.name, nb, self.description)
        return reader.answer(self.cell(path))

    def cell(self, path: Path) -> AnswerCell:
        return next(iter(store.read(path).notebook.answers()))

    def steps(self, path: Path, most: int = 60) -> list[str]:
        """Each step in a process of its own, as far as what it knows goes; their names."""
        done = []
        while (step := (asking := self.asking(path)).next_step()) is not None:
            done.append(getattr(step, "func", step).__name__)
            with asking.folder.alone():
                step()
            assert len(done) < most, done
        return done

    # --- what is played -----------------------------------------------------------------------------------------------

    def _call(self) -> None:
        self.calls += 1
        if self.calls == self.crash_at:
            raise Killed

    def save(self, stored: Any, nb: Notebook, **more: Any) -> Any:
        self._call()
        saved = self.put(stored, nb, **more)
        self._call()
        return saved

    def _record(self, experiment: Experiment, seed: int, **more: Any) -> JobFolder:
        values = self.curve(experiment, seed)
        status = "FAILED" if values is None else "FINISHED"
        self.runs += 1
        rate = {"scalebook.lr.asked": str(experiment.rate.requested)}
        run = record(
            self.client, seed=seed, values=values or [], metric=self.metric, status=status, tags=rate, **more,
            start=self.runs,
        )  # fmt: skip
        self.client.set_terminated(run, status, end_time=self.runs + round(1000 * self.took_s))
        job = JobFolder(self.workspace.jobs / run)
        job.path.mkdir(parents=True)
        job.write(Progress(time.time(), "ending", updates=400, epoch=int(experiment.trainer.get("max_epochs") or 0)))
        words = ("failed", time.time(), "diverged", self.why) if values is None else ("finished", time.time())
        job.write(Result(*words))
        return job

    def submit(
        self,
        workspace: Workspace,
        experiment: Experiment,
        *,
        seeds: Sequence[int],
        notebook: str,
        cell: str,
        recorded: Any,
    ) -> list[JobFolder]:
        jobs = []
        for seed in seeds:
            self._call()
            hashed = config_hash(experiment)
            jobs.append(self._record(experiment, seed, notebook=notebook, cell=cell, config_hash=hashed))
        return jobs

    def search(
        self, workspace: Workspace, body: Mapping[str, Any], base: Experiment | None, *, name: str, notebook: str,
        cell: str, description: Description, recorded: Any,
    ) -> SearchFolder:  # fmt: skip
        spec = read_search(body, base, description)
        folder = search_requests.of_cell(workspace, notebook, cell)
        if folder is None:
            self._call()
            folder = SearchFolder(workspace.studies / uuid.uuid4().hex)
            folder.path.mkdir(parents=True)
            storage = f"journal:{folder.path / 'journal.log'}"
            folder.write(SearchRequest(
                id=folder.id, created=time.time(), name=name, mlflow_experiment=Path(notebook).stem,
                tracking_uri=workspace.tracking_uri(), identity=identity(spec), storage=storage, notebook=notebook,
                cell=cell,
            ))  # fmt: skip
        folder.write_body(body_of(spec))
        sign(folder.path, folder.id, SEARCH)
        request = folder.request()
        study = Study.open(request.storage, request.study, spec)
        for point in spec.points[len(study.records()) :]:
            study.give(point)
        for _ in [one for one in study.records() if one.state == "waiting"]:
            self._call()
            asked = study.ask()
            experiment = resolve(spec, asked.point)
            run = self._record(experiment, 1, notebook="", cell="")
            if run.state() == "failed":
                study.infeasible(asked.number, "diverged", "the loss became nan")
            else:
                study.update_trial(asked.number, runs={1: run.id}, seconds=1.0)
                study.finish(asked.number, (min(self.curve(experiment, 1) or [1.0]),))
        folder.write(SearchProgress(time.time(), len(spec.points), 0, spec.trials))
        folder.write(SearchResult("finished", time.time()))
        return folder


class Killed(BaseException):
    """The process ends here."""


def _no_supervisor(workspace: Workspace) -> AbstractContextManager[None]:
    return nullcontext()
