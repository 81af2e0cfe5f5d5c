"""Answers a question: writes the cells of its recipe into the notebook, runs them, and stops when the budget is spent.

What to do next follows from the notebook and its runs alone, so a question that was killed goes on where it was.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from scalebook.training.asking import sizes
from scalebook.training.asking.ask_folder import STARTING, AskFolder, AskProgress
from scalebook.training.asking.asked_cells import with_seeds
from scalebook.training.asking.best_point import (
    BestPoint,
    all_diverged,
    best_curves,
    best_point,
    first_failure,
    run_ids,
    target_of,
)
from scalebook.training.asking.expected import expected, plan
from scalebook.training.asking.previews import machine, possible, sides_of, taken, unlogged
from scalebook.training.asking.recipe import Side
from scalebook.training.asking.recipes import recipe_named
from scalebook.training.base import ConfigError, Workspace, roughly
from scalebook.training.experiments import Description, Experiment, config_hash
from scalebook.training.experiments.search import resolve, summary
from scalebook.training.jobs import ENDED, JobFolder, SupervisorKeeper, job_requests, supervisor_handle
from scalebook.training.notebook import (
    AnswerCell,
    Axis,
    ComparisonCell,
    ExperimentCell,
    Notebook,
    SearchCell,
    SeedResult,
    Stored,
    best,
    edit,
    results,
    store,
    unnamed,
)
from scalebook.training.notebook.claims import EvidenceReader, Judgement, claim_tags, judge_all
from scalebook.training.search import SearchFolder, search_folder, search_requests
from scalebook.training.tracking import NotebookRuns, RunReader, RunRecord, directions

PLANNED_FROM_S: Final = 300.0
"""Budget from which the planner is asked: it measures for half a minute."""
FRESH: Final = 1000
"""Distance of the fresh seeds from those that have chosen the learning rate."""
FEWEST, MOST_SEEDS = 3, 32
"""Fresh seeds of each side: fewer give no interval."""
FIX_THE_SEARCH: Final = "Find the cause in the search and fix the experiment, or set a larger budget."
SIMULATED_BOUND: Final = 1.1
"""The claim of virtual workers, whose seconds are of a declared clock: at most so many times the samples."""
RECORD_DEADLINE_S: Final = 30.0
LOOK_EVERY_S: Final = 0.2
TRIES: Final = 5
"""Attempts to write a notebook that others edit at the same time."""

Say = Callable[[str], None]
"""Called with what is done next, in words."""


class NoAnswer(Exception):
    """The question cannot be answered: a run that everything depends on has failed."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(f"{message}. {fix}")
        self.message, self.fix = message, fix


class Asking:
    """One question of a notebook. `run` works until there is an answer, or the budget is spent."""

    def __init__(self, path: Path, answer: str, description: Description, say: Say = lambda words: None) -> None:
        self.path, self.answer, self.description, self.say = path, answer, description, say
        self.workspace = Workspace(path.resolve().parent)
        self.folder = AskFolder.of(self.workspace, path.name, answer)
        self.reader = NotebookRuns(RunReader(self.workspace.tracking_uri()), path.name)
        self.machine = machine()
        progress = self.folder.progress()
        self.spent_before = progress.spent_s if progress else 0.0
        self.plan, self.left_out = (progress.plan, tuple(progress.left_out)) if progress else ("", ())
        self.begun = time.monotonic()
        self.asked_planner = False

    # --- what there is ------------------------------------------------------------------------------------------------

    def stored(self) -> Stored:
        return store.read(self.path)

    def cell(self, nb: Notebook) -> AnswerCell:
        """The answer's cell; ConfigError where it was removed."""
        cell = next((one for one in nb.answers() if one.name == self.answer), None)
        if cell is None:
            raise ConfigError("answer", f"there is no answer {self.answer} in {self.path.name}", "Ask again.")
        return cell

    def experiment_of(self, nb: Notebook, name: str) -> Experiment:
        cell = nb.experiment(name)
        if cell is None:
            raise ConfigError(
                "experiment", f"there is no experiment {name} in {self.path.name}", "Choose another experiment."
            )
        return cell.experiment(self.description)

    def sides(self, nb: Notebook, cell: AnswerCell) -> list[Side]:
        often = self._often(nb, cell)
        made = sides_of(nb, cell, self.description, self.machine)
        made = [replace(side, experiment=_validating(side.experiment, often)) for side in made]
        sides, refused = possible(made)
        self._leave_out(*refused)
        return sides

    def _often(self, nb: Notebook, cell: AnswerCell) -> float | None:
        """How often runs validate, as the pilot run did, where that is not the experiment's own."""
        pilot = nb.experiment(cell.pilot or "")
        own = self.experiment_of(nb, cell.experiment).written.get("trainer") or {}
        often = pilot.experiment(self.description).trainer.get("val_check_interval") if pilot is not None else None
        return often if isinstance(often, float) and "val_check_interval" not in own else None

    @property
    def spent_s(self) -> float:
        return self.spent_before + time.monotonic() - self.begun

    # --- the loop -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """ConfigError for mistakes, NoAnswer where a run failed that everything depends on. KeyboardInterrupt stops
        what runs and is raised again."""
        with self.folder.alone(), supervisor_handle.hold_supervisor(self.workspace.create()):
            self._note(STARTING)
            while (step := self.next_step()) is not None:
                step()
                self._note("")
            self._note("")

    def next_step(self) -> Callable[[], None] | None:
        """What to do next; None when nothing is left to do, or no time."""
        self.reader = NotebookRuns(self.reader.reader, self.path.name)  # lists the runs again
        stored = self.stored()
        nb, cell = stored.notebook, self.cell(stored.notebook)
        if cell.pilot is None or nb.experiment(cell.pilot) is None:
            return self.write_pilot
        if self._pilot(nb, cell) is None:
            return self.run_pilot
        if self._plans(nb, cell):
            return self.make_plan
        if not cell.searches:
            return self.write_searches
        if cell.comparison not in [one.name for one in nb.comparisons()]:
            search = self._next_search(nb, cell)
            if search is not None:  # sides at rates of which not all were tried are not compared
                return None if self._out_of_time(cell) else search
            return self.write_sides
        if self._due(nb, cell):
            return None if self._out_of_time(cell) else self.run_seeds
        return self.add_seeds if self._worth_adding(stored, cell) else None

    def _out_of_time(self, cell: AnswerCell) -> bool:
        return self.spent_s >= cell.budget_s

    # --- the pilot ----------------------------------------------------------------------------------------------------

    def write_pilot(self) -> None:
        """The first side, for a share of the budget at most. ConfigError for what cannot be asked about."""

        def change(nb: Notebook, cell: AnswerCell) -> Notebook:
            first = self.sides(nb, cell)[0].experiment
            trainer = dict(first.written.get("trainer") or {})
            if trainer.get("max_time") is None:
                trainer["max_time"] = _clock(sizes.pilot_s(cell.budget_s))
            if recipe_named(cell.question).figure != "best" and (often := sizes.validated(first)):
                trainer["val_check_interval"] = often
            name = edit.unique_name(nb, f"{cell.name}-pilot")
            remark = (
                "This is the pilot run of the question, a short first run. It shows how long a run takes and which "
                "metrics the model logs."
            )
            config = first.with_config({**first.written, "trainer": trainer}).written
            nb = edit.put_experiment(nb, name, config, position=self._last(nb, cell), remark=remark)
            return edit.put_answer(nb, replace(cell, pilot=name))

        self.change(change)

    def run_pilot(self) -> None:
        stored = self.stored()
        cell = self.cell(stored.notebook)
        pilot = stored.notebook.experiment(cell.pilot or "")
        assert pilot is not None, "next_step has looked"
        self._say(f"pilot run: {pilot.experiment(self.description).strategy.name}", None)
        run = self._run(stored.notebook, pilot, pilot.seeds(1))
        if run and self._often(stored.notebook, cell) is not None and "val_check_interval" in run:
            self.change(partial(_without_interval, name=pilot.name))  # such as data whose length is not known
        elif run:
            raise NoAnswer(f"The pilot run of {cell.experiment} {run}", "Fix the experiment, and ask again.")

    def _pilot(self, nb: Notebook, cell: AnswerCell) -> RunRecord | None:
        pilot = nb.experiment(cell.pilot or "")
        assert pilot is not None, "next_step has looked"
        runs = self._results(nb, pilot)
        return (
            runs[0].run
            if runs and runs[0].run and not runs[0].stale and not runs[0].due and runs[0].run.ended
            else None
        )

    # --- the plan of more workers -------------------------------------------------------------------------------------

    def _plans(self, nb: Notebook, cell: AnswerCell) -> bool:
        """Whether the planner is still to be asked: once, and only where the budget leaves time for it."""
        begun = self.asked_planner or bool(cell.searches)
        if begun or not recipe_named(cell.question).planned or cell.budget_s < PLANNED_FROM_S:
            return False
        experiment = self.experiment_of(nb, cell.experiment)
        return not expected(self.workspace, experiment, self.machine.slots(experiment))

    def make_plan(self) -> None:
        self.asked_planner = True
        nb = self.stored().notebook
        experiment = self.experiment_of(nb, self.cell(nb).experiment)
        self._say("measuring for a few seconds, to predict the speed with more workers than this machine has room for")
        if why := plan(self.workspace, experiment, self.machine.slots(experiment)):
            self._leave_out(why)

    # --- the searches -------------------------------------------------------------------------------------------------

    def write_searches(self) -> None:
        stored = self.stored()
        cell = self.cell(stored.notebook)
        pilot = self._pilot(stored.notebook, cell)
        assert pilot is not None, "next_step has looked"
        metric, goal = self._metric(stored.notebook, cell, pilot)
        every = self.sides(stored.notebook, cell)
        run, one_by_one = self._run_time(pilot, every[0]), recipe_named(cell.question).figure == "seconds"
        fitting = sizes.required(every, self.machine, run, cell.budget_s, one_by_one, self.spent_s)
        self.plan = sizes.words(fitting, every)
        self._leave_out(*sizes.left_out(fitting, every))
        if often := self._often(stored.notebook, cell):
            self._leave_out(f"Each run validates {1 / often:g} times per epoch, to show when it reaches the target.")
        self.say(self.plan)
        self._note(self.plan, fitting.seconds)

        def change(nb: Notebook, cell: AnswerCell) -> Notebook:
            searches = {}
            place = self._last(nb, cell)
            for side in self.sides(nb, cell)[: fitting.sides]:
                name = edit.unique_name(nb, f"{cell.name}-{side.name}")
                body = self._search_body(side, fitting, metric, goal)
                if body is None:
                    searches[name] = ""
                    continue
                search = edit.unique_name(nb, f"{name}-rates")
                nb = edit.put_search(nb, search, body, place)
                place += 1
                searches[name] = search
            return edit.put_answer(nb, replace(cell, metric=metric, goal=goal, searches=searches))

        self.change(change)

    def _metric(self, nb: Notebook, cell: AnswerCell, pilot: RunRecord) -> tuple[str, directions.Goal]:
        """The metric that decides, and its direction. ConfigError for one that the pilot run has not logged."""
        experiment = self.experiment_of(nb, cell.experiment)
        metric = cell.metric or unnamed([experiment], [pilot])
        curve = self.reader.curve(pilot.id, metric)
        if not curve.values:
            raise unlogged(cell.pilot or "", metric, pilot.metrics)
        better = directions.of_runs(metric, cell.goal, [pilot.tags], [experiment.callbacks])
        reached = best(curve, better.lower)
        if recipe_named(cell.question).figure == "best" and reached is not None and reached <= 0:
            fix = "Choose a metric that is always above 0, such as a loss, an error rate or a perplexity."
            raise NoAnswer(
                f"{metric} is not always above 0, so a ratio of two of its values does not show which is better", fix
            )
        return metric, "min" if better.lower else "max"

    def _run_time(self, pilot: RunRecord, side: Side) -> sizes.RunTime:
        """The time of a full training, from the part that the pilot run made. NoAnswer where that cannot be said."""
        job, trainer = job_requests.folder_of(self.workspace, pilot.id), side.experiment.trainer
        progress, took = job.progress() if job is not None else None, taken(self.workspace, pilot)
        shares = []
        for key, done in (
            ("max_epochs", progress.epoch if progress else 0),
            ("max_steps", progress.updates if progress else 0),
        ):
            whole = trainer.get(key)
            if isinstance(whole, int) and whole > 0:
                shares.append(done / whole)
        share = max(shares, default=1.0)
        if share <= 0:
            raise NoAnswer(f"The first epoch takes longer than {roughly(took.whole_s)}", "Set a larger budget.")
        return sizes.RunTime(took.starting_s, took.training_s / min(1.0, share))

    def _search_body(self, side: Side, fits: sizes.Sizes, metric: str, goal: directions.Goal) -> dict[str, Any] | None:
        """The search for what is tuned of a side; None where nothing is."""
        if not side.tuned:
            return None
        points = sizes.points(side, fits.rates)
        rates = [point["learning_rate"] for point in points]
        ends = [sizes.rounded(end) for end in (min(rates) / 1024, max(rates) * 64)]
        space: dict[str, Any] = {"learning_rate": {"log_uniform": ends}}
        if "batch_size" in side.tuned:
            space = {"batch_size": {"grid": sizes.batches(side)}, **space}
        return {
            "config": sizes.shortened(side.experiment, fits.share).written,
            "objective": {metric: goal},
            "scaling": "weak",
            "space": space,
            "pruner": "none" if "batch_size" in side.tuned else "median",
            "trials": len(points),
            "points": points,
        }

    def _next_search(self, nb: Notebook, cell: AnswerCell) -> Callable[[], None] | None:
        """The searches that have not ended, or else those whose best point is at an edge of what was tried; None where
        there are none."""
        going, ended = [], []
        for search in filter(None, map(nb.search, cell.searches.values())):
            folder = search_requests.of_cell(self.workspace, self.path.name, search.name)
            if (
                folder is None
                or folder.state() not in search_folder.ENDED
                or folder.state() == "stopped"
                or len(search.body.get("points", [])) > len(folder.spec(self.description).points)
            ):
                going.append(search)
            else:
                ended.append((search, folder))
        if going:
            return partial(self.run_searches, going)
        with suppress(NoAnswer):  # every run of the baseline has diverged: it tries smaller rates first
            cell = replace(cell, target=self._target(nb, cell))
        edges = [(search, more) for search, folder in ended if (more := self._beyond(cell, folder))]
        return partial(self.extend_searches, edges) if edges else None

    def _each_s(self, nb: Notebook, cell: AnswerCell, pilot: RunRecord) -> float:
        """Seconds of a run of the question: as the pilot run has it, or the searches, if theirs took longer."""
        made = self.sides(nb, cell)
        each = self._run_time(pilot, made[0]).of(self._share(nb, cell, made))
        took = []
        for search in filter(None, map(nb.search, cell.searches.values())):
            folder = search_requests.of_cell(self.workspace, self.path.name, search.name)
            runs = run_ids(folder, folder.spec(self.description)) if folder is not None else ()
            took += [self._took_s(run) for run in map(self.reader.run, runs) if run.ended is not None]
        return max(each, sum(took) / len(took)) if took else each

    def _took_s(self, run: RunRecord) -> float:
        """Seconds of a run that has ended, and until the next one begins."""
        return taken(self.workspace, run).whole_s + sizes.BETWEEN_S

    def run_searches(self, searches: Sequence[SearchCell]) -> None:
        """All of them at once: the queue starts their runs as there is room."""
        stored = self.stored()
        nb, cell = stored.notebook, self.cell(stored.notebook)
        folders = [
            search_requests.start(
                self.workspace, search.body, nb.base(search, self.description), name=search.name,
                notebook=self.path.name, cell=search.name, description=self.description,
                recorded=claim_tags(nb, search.name, self.description),
            )
            for search in searches
        ]  # fmt: skip
        keeper, late = SupervisorKeeper(self.workspace), False
        whole, left_s = sum(map(_trials, searches)), self._left_of_search(nb, cell, searches)
        of_batches = any("batch_size" in search.body.get("space", {}) for search in searches)
        what = f"trying {'batch sizes and ' if of_batches else ''}learning rates"
        try:
            while any(folder.state() not in search_folder.ENDED for folder in folders):
                keeper.has_changed()
                progress = [one for one in (folder.progress() for folder in folders) if one is not None]
                done = sum(one.done for one in progress)
                self._say(f"{what}: {done} of {whole} runs", left_s(done))
                if self._out_of_time(cell) and not late:
                    late = True
                    _stop(folders)
                time.sleep(LOOK_EVERY_S)
        except BaseException:
            _stop(folders)
            raise
        stopped = [folder.request().name for folder in folders if folder.state() == "stopped"]
        if stopped and not late:
            raise NoAnswer(f"The search {stopped[0]} was stopped", "Ask the question again to resume the search.")

    def _left_of_search(
        self, nb: Notebook, cell: AnswerCell, searches: Sequence[SearchCell]
    ) -> Callable[[int], float | None]:
        """About how long it takes to the answer, by how many runs of these searches are done; within the budget."""
        pilot = self._pilot(nb, cell)
        assert pilot is not None, "next_step has looked"
        each_s, made = self._each_s(nb, cell, pilot), self.sides(nb, cell)
        trials = {search.name: _trials(search) for search in searches}
        counts = [trials.get(name, 0) for name in cell.searches.values()]
        whole, compared = max(1, sum(counts)), made[: len(counts)]
        searching_s = sizes.searching_s(compared, self.machine, counts, each_s)
        seeds = self._seeds(nb, cell, len(compared), pilot)
        one_by_one = recipe_named(cell.question).figure == "seconds"
        judging_s = sizes.judging_s(compared, self.machine, seeds, each_s, one_by_one)

        def left_s(done: int) -> float:
            left = searching_s * (1 - done / whole) + judging_s
            return max(0.0, min(left, cell.budget_s - self.spent_s))

        return left_s

    def _beyond(self, cell: AnswerCell, folder: SearchFolder) -> list[dict[str, Any]]:
        """Points beyond the best one where that is at an edge of what was tried, and smaller rates where every run has
        diverged; those within the space, with a margin so that no search counts as one at the edge of its space."""
        spec = folder.spec(self.description)
        chosen = self._best(cell, folder)
        points = sizes.beyond(chosen.tried, chosen.point) if chosen else sizes.below(all_diverged(folder, spec))
        if not points or not spec.has("learning_rate"):
            return []
        low, high = spec.dimension("learning_rate").ends()
        batches = spec.dimension("batch_size").choices if spec.has("batch_size") else ()
        inside = [4 * low <= point["learning_rate"] <= high / 4 for point in points]
        of_space = [point.get("batch_size") in (None, *batches) for point in points]
        return [point for point, *fits in zip(points, inside, of_space, strict=True) if all(fits)]

    def _best(self, cell: AnswerCell, folder: SearchFolder) -> BestPoint | None:
        """The best point: of batch sizes the soonest one, of learning rates the one with the fewest samples."""
        spec = folder.spec(self.description)
        axis: Literal["seconds", "samples"] = "seconds" if spec.has("batch_size") else "samples"
        return best_point(self.reader, folder, spec, cell.metric, cell.goal != "max", cell.target, axis)

    def extend_searches(self, edges: Sequence[tuple[SearchCell, Sequence[dict[str, Any]]]]) -> None:
        def change(nb: Notebook, cell: AnswerCell) -> Notebook:
            for search, more in edges:
                points = [*search.body.get("points", []), *more]
                nb = edit.put_search(nb, search.name, {**search.body, "points": points, "trials": len(points)})
            return nb

        self.change(change)

    # --- fresh seeds --------------------------------------------------------------------------------------------------

    def write_sides(self) -> None:
        """The experiments at their best points, with fresh seeds, the comparison and the claims."""
        stored = self.stored()
        cell = self.cell(stored.notebook)
        target = self._target(stored.notebook, cell)
        tuned = self._tuned(stored.notebook, replace(cell, target=target))
        baseline = next(iter(cell.searches))
        missing = [name for name in cell.searches if name not in tuned]
        if baseline not in tuned or len(tuned) < 2:
            fix = FIX_THE_SEARCH
            raise NoAnswer(f"No run of {' or '.join(missing)} has finished", fix)
        called = self._called(stored.notebook, cell)
        for name in missing:
            folder = search_requests.of_cell(self.workspace, self.path.name, cell.searches[name])
            why = first_failure(folder, folder.spec(self.description)) if folder is not None else ""
            words = f"Not compared: {called[name]}. No run of its search has finished"
            self._leave_out(f"{words}{f': {why}' if why else ''}.")
        pilot = self._pilot(stored.notebook, cell)
        assert pilot is not None, "next_step has looked"
        tuned = self._affordable(stored.notebook, cell, tuned, pilot)
        seeds = self._seeds(stored.notebook, cell, len(tuned), pilot)

        def change(nb: Notebook, cell: AnswerCell) -> Notebook:
            place = self._last(nb, cell)
            for name, (experiment, remark) in tuned.items():
                nb = edit.put_experiment(nb, name, _fresh(experiment).written, seeds, place, remark)
                place += 1
            figure = recipe_named(cell.question).figure
            comparison = cell.comparison or edit.unique_name(nb, f"{cell.name}-sides")
            axes: list[Axis] = ["seconds", "samples"] if figure == "seconds" else ["samples"]
            nb = edit.put_comparison(
                nb, ComparisonCell("", comparison, [*tuned], cell.metric, axes, target, goal=cell.goal), place
            )
            claims, there = [], {str(one.runs[0]): one.name for one in nb.claims() if one.name in cell.claims}
            for name in [*tuned][1:]:
                wanted = f"{name}-or-{baseline.removeprefix(cell.name).strip('-')}"
                claim = there.get(name) or edit.unique_name(nb, wanted)
                place += 1
                nb = edit.put_claim(nb, claim, self._claim(cell, name, baseline, target, tuned[name][0]), place)
                claims.append(claim)
            return edit.put_answer(nb, replace(cell, target=target, comparison=comparison, claims=claims))

        self.change(change)

    def _tuned(self, nb: Notebook, cell: AnswerCell) -> dict[str, tuple[Experiment, str]]:
        """By the name of its cell, each side that trains at its best point, and what is said of that."""
        every = {}
        made = self.sides(nb, cell)
        share = self._share(nb, cell, made)
        for place, (name, searched) in enumerate(cell.searches.items()):
            if not searched:
                every[name] = (sizes.shortened(made[place].experiment, share), "")
                continue
            folder = search_requests.of_cell(self.workspace, self.path.name, searched)
            best = self._best(cell, folder) if folder is not None else None
            if folder is None or best is None:
                continue
            spec = folder.spec(self.description)
            words = f"At the best point of the search {searched}: {summary(spec, best.point)}."
            every[name] = (resolve(spec, best.point), words)
        return every

    def _affordable(
        self, nb: Notebook, cell: AnswerCell, tuned: dict[str, tuple[Experiment, str]], pilot: RunRecord
    ) -> dict[str, tuple[Experiment, str]]:
        """The first sides, for which there is time for the fewest seeds; two at least."""
        together = FEWEST * self._each_s(nb, cell, pilot)
        room = (
            max(2, int((cell.budget_s - self.spent_s) / together))
            if recipe_named(cell.question).figure == "seconds"
            else 99
        )
        called = self._called(nb, cell)
        if late := [called[name] for name in [*tuned][room:]]:
            self._leave_out(f"Not compared, because there was no time left: {'; '.join(late)}.")
        return dict([*tuned.items()][:room])

    def _called(self, nb: Notebook, cell: AnswerCell) -> dict[str, str]:
        """What people call each side, by the name of its cell."""
        return {name: side.words for name, side in zip(cell.searches, self.sides(nb, cell), strict=False)}

    def _target(self, nb: Notebook, cell: AnswerCell) -> float | None:
        """The target that the question names; else the value that the two best runs of the baseline's search reach
        after a part of their samples, or the pilot run, if nothing of the baseline is searched. None where the best
        value decides."""
        if cell.target is not None or recipe_named(cell.question).figure == "best":
            return cell.target
        searched = next(iter(cell.searches.values()))
        lower, share = cell.goal != "max", 1.0
        if searched:
            folder = search_requests.of_cell(self.workspace, self.path.name, searched)
            curves = []
            if folder is not None:
                curves = best_curves(self.reader, folder, folder.spec(self.description), cell.metric, lower)
            if not curves:
                raise NoAnswer(f"No run of {searched} has finished", FIX_THE_SEARCH)
        else:
            pilot, sides = self._pilot(nb, cell), self.sides(nb, cell)
            assert pilot is not None, "next_step has looked"
            part, whole = taken(self.workspace, pilot).training_s, self._run_time(pilot, sides[0]).training_s
            share = min(1.0, self._share(nb, cell, sides) * whole / part) if part else 1.0
            curves = [self.reader.curve(pilot.id, cell.metric)]
        targets = [target for curve in curves if (target := target_of(curve, lower, share)) is not None]
        if not targets:
            fix = "Validate more often (trainer.val_check_interval: 0.25), or set a target."
            raise NoAnswer(f"No run has validated {cell.metric} often enough to choose a target", fix)
        return max(targets) if lower else min(targets)

    def _claim(
        self, cell: AnswerCell, side: str, baseline: str, target: float | None, experiment: Experiment
    ) -> dict[str, Any]:
        recipe = recipe_named(cell.question)
        figure, bound = recipe.figure, recipe.bound
        if figure == "seconds" and experiment.strategy.is_simulated:
            figure, bound = "samples", SIMULATED_BOUND
        values: dict[str, Any] = {"runs": [side], "against": baseline, "figure": figure}
        values["metric"] = directions.metric_text(cell.metric, cell.goal)
        if figure == "best":
            return {**values, **({"at_least": bound} if cell.goal == "max" else {"at_most": bound})}
        return {**values, "target": target, "at_most": bound}

    def _seeds(self, nb: Notebook, cell: AnswerCell, sides: int, pilot: RunRecord) -> int:
        """Fresh seeds of each side that the rest of the budget allows; three at least, so that there is an interval."""
        each = self._each_s(nb, cell, pilot)
        return max(FEWEST, min(sizes.FULL[1], int((cell.budget_s - self.spent_s) / (sides * each))))

    def _share(self, nb: Notebook, cell: AnswerCell, made: Sequence[Side]) -> float:
        """The part of the experiment's own training that the searches make."""
        for place, name in enumerate(cell.searches.values()):
            search = nb.search(name)
            if search is not None:
                short = Experiment.read(search.body.get("config"), self.description).trainer
                full = made[place].experiment.trainer
                for key in ("max_epochs", "max_steps"):
                    if isinstance(full.get(key), int) and full[key] > 0 and isinstance(short.get(key), int):
                        return float(short[key] / full[key])
        return 1.0

    def _due(self, nb: Notebook, cell: AnswerCell) -> list[tuple[ExperimentCell, int]]:
        """The fresh seeds that have not run, by turns: drifts of the machine then meet all sides alike."""
        comparison = next((one for one in nb.comparisons() if one.name == cell.comparison), None)
        due: list[tuple[int, int, ExperimentCell, int]] = []
        for place, name in enumerate(comparison.runs if comparison else ()):
            side = nb.experiment(name)
            for turn, result in enumerate(self._results(nb, side) if side else ()):
                failed = result.run is not None and result.run.outcome == "failed" and not result.stale
                if side is not None and (result.due or result.run is None or not result.run.ended) and not failed:
                    due.append((turn, place, side, result.seed))
        return [(side, seed) for _, _, side, seed in sorted(due, key=lambda one: one[:2])]

    def run_seeds(self) -> None:
        """The next seed, by itself, where seconds decide; else all that are due, side by side."""
        stored = self.stored()
        nb, cell = stored.notebook, self.cell(stored.notebook)
        due = self._due(nb, cell)
        one_by_one = recipe_named(cell.question).figure == "seconds"
        side, seed = due[0]
        if one_by_one:
            words = f"{side.name}, seed {seed} ({len(due)} {'run' if len(due) == 1 else 'runs'} left)"
            self._say(words, self._left_of_seeds(nb, cell, len(due)))
            self._run(nb, side, [seed])
            return
        self._say(f"{len(due)} runs with fresh seeds", self._left_of_seeds(nb, cell, len(due)))
        by_side: dict[str, list[int]] = {}
        for one, number in due:
            by_side.setdefault(one.name, []).append(number)
        jobs = []
        for name, numbers in by_side.items():
            one_side = nb.experiment(name)
            assert one_side is not None, "it is due"
            jobs += self._submit(nb, one_side, numbers)
        self._follow(jobs)

    def _left_of_seeds(self, nb: Notebook, cell: AnswerCell, due: int) -> float | None:
        """About how long so many fresh seeds take: those that have run one by one, else as the pilot run."""
        pilot, one_by_one = self._pilot(nb, cell), recipe_named(cell.question).figure == "seconds"
        if pilot is None:
            return None
        took = self._sides_took_s(nb, cell) if one_by_one else []
        each_s, made = sum(took) / len(took) if took else self._each_s(nb, cell, pilot), self.sides(nb, cell)
        sides = max(1, len(cell.searches))
        left_s = (
            each_s * due if one_by_one else sizes.judging_s(made[:sides], self.machine, due // sides, each_s, False)
        )
        return max(0.0, min(left_s, cell.budget_s - self.spent_s))

    def _sides_took_s(self, nb: Notebook, cell: AnswerCell) -> list[float]:
        """Seconds of each run of the sides that has ended."""
        comparison = next((one for one in nb.comparisons() if one.name == cell.comparison), None)
        sides = [one for one in nb.experiments() if comparison is not None and one.name in comparison.runs]
        runs = [result.run for side in sides for result in self._results(nb, side)]
        return [self._took_s(run) for run in runs if run is not None and run.ended is not None]

    def _worth_adding(self, stored: Stored, cell: AnswerCell) -> int:
        """The seeds that would resolve what is not resolved, two more of each at least, if there is time; else 0."""
        judged = self._judged(stored, cell)
        lasting = [one.resolved_by for one in judged if one.verdict == "not resolved" and one.resolved_by]
        comparison = next(one for one in stored.notebook.comparisons() if one.name == cell.comparison)
        sides = [one for one in stored.notebook.experiments() if one.name in comparison.runs]
        same = len({config_hash(side.experiment(self.description)) for side in sides}) == 1
        if not lasting or same or self._out_of_time(cell):
            return 0
        now = max(side.repeats for side in sides)
        took = self._sides_took_s(stored.notebook, cell)
        each = sum(took) / max(1, len(took)) * len(sides)
        room = int((cell.budget_s - self.spent_s) / each) if each else 0
        wanted = min(MOST_SEEDS, max(min(lasting), now + 2), now + room)
        return wanted if wanted >= now + 2 else 0

    def _judged(self, stored: Stored, cell: AnswerCell) -> list[Judgement]:
        evidence = EvidenceReader(self.workspace, self.reader, self.path.name, stored.notebook, self.description)
        return [one for name, one in judge_all(evidence).items() if name in cell.claims]

    def add_seeds(self) -> None:
        stored = self.stored()
        seeds = self._worth_adding(stored, self.cell(stored.notebook))
        self.change(lambda nb, cell: with_seeds(nb, cell, seeds))

    # --- runs ---------------------------------------------------------------------------------------------------------

    def _results(self, nb: Notebook, side: ExperimentCell) -> list[SeedResult]:
        return results(self.reader, self.path.name, side, self.description, nb)

    def _submit(self, nb: Notebook, side: ExperimentCell, seeds: Sequence[int]) -> list[JobFolder]:
        """Jobs for these seeds; those that run already are taken over."""
        by_seed = {result.seed: result.run for result in self._results(nb, side) if result.run and not result.due}
        going = [job_requests.folder_of(self.workspace, by_seed[seed].id) for seed in seeds if seed in by_seed]
        jobs = [job for job in going if job is not None and job.state() not in ENDED]
        rest = [seed for seed in seeds if seed not in by_seed]
        if rest:
            jobs += job_requests.submit(
                self.workspace, side.experiment(self.description), seeds=rest, notebook=self.path.name, cell=side.name,
                recorded=claim_tags(nb, side.name, self.description),
            )  # fmt: skip
        return jobs

    def _run(self, nb: Notebook, side: ExperimentCell, seeds: Sequence[int]) -> str:
        """Run them to their end; why the first one did not finish, or ""."""
        jobs = self._submit(nb, side, seeds)
        self._follow(jobs)
        result = jobs[0].outcome() if jobs else None
        return f"{result.status}: {result.why}" if result is not None and result.status != "finished" else ""

    def _follow(self, jobs: Sequence[JobFolder]) -> None:
        keeper = SupervisorKeeper(self.workspace)
        try:
            while any(job.state() not in ENDED for job in jobs):
                keeper.has_changed()
                time.sleep(LOOK_EVERY_S)
        except BaseException:
            for job in jobs:
                if job.state() not in ENDED:
                    job_requests.stop(job, "together with the question")
            raise
        self._wait_for_record(jobs)

    def _wait_for_record(self, jobs: Sequence[JobFolder]) -> None:
        """MLflow records a run's end shortly after its job's."""
        deadline = time.monotonic() + RECORD_DEADLINE_S
        for job in jobs:
            while self.reader.run(job.id).ended is None and time.monotonic() < deadline:
                time.sleep(LOOK_EVERY_S)

    # --- the notebook and the progress --------------------------------------------------------------------------------

    def change(self, change: Callable[[Notebook, AnswerCell], Notebook]) -> None:
        """Write the notebook with a change; once more on top of what others have written meanwhile."""
        for _ in range(TRIES):
            stored = self.stored()
            try:
                store.save(stored, change(stored.notebook, self.cell(stored.notebook)))
            except store.EditedMeanwhile:
                continue
            return
        raise ConfigError(self.path.name, "keeps being edited by somebody else", "Ask again.")

    def _last(self, nb: Notebook, cell: AnswerCell) -> int:
        """Behind the last of the answer's own cells."""
        own = {cell.name, *cell.own}
        places = [place for place, one in enumerate(nb.cells) if getattr(one, "name", None) in own]
        return max(places, default=len(nb.cells) - 1) + 1

    def _leave_out(self, *sentences: str) -> None:
        self.left_out = (*self.left_out, *(one for one in sentences if one not in self.left_out))

    def _say(self, words: str, left_s: float | None = None) -> None:
        """Tell what is done next, and about how long it takes to the answer."""
        self.say(f"{words}, about {roughly(left_s)} left" if left_s else words)
        self._note(words, left_s)

    def _note(self, words: str, left_s: float | None = None) -> None:
        self.folder.write(AskProgress(time.time(), self.spent_s, words, left_s, [*self.left_out], self.plan))


def _stop(folders: Sequence[SearchFolder]) -> None:
    for folder in folders:
        if folder.state() not in search_folder.ENDED:
            search_requests.stop(folder)


def _trials(search: SearchCell) -> int:
    return int(search.body.get("trials") or 0)


def _validating(experiment: Experiment, often: float | None) -> Experiment:
    """The experiment with validations after so large a share of each epoch."""
    if often is None:
        return experiment
    trainer = {**(experiment.written.get("trainer") or {}), "val_check_interval": often}
    return experiment.with_config({**experiment.written, "trainer": trainer})


def _without_interval(nb: Notebook, cell: AnswerCell, name: str) -> Notebook:
    """With a pilot run that validates as the experiment says."""
    pilot = nb.experiment(name)
    assert pilot is not None, "it has run"
    trainer = {key: value for key, value in pilot.config["trainer"].items() if key != "val_check_interval"}
    return edit.put_experiment(nb, name, {**pilot.config, "trainer": trainer})


def _fresh(experiment: Experiment) -> Experiment:
    """With seeds that have chosen nothing."""
    return experiment.with_config({**experiment.written, "seed_everything": experiment.seeds(1)[0] + FRESH})


def _clock(seconds: float) -> str:
    """As `trainer.max_time` is written: days, hours, minutes, seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days:02d}:{hours:02d}:{minutes:02d}:{rest:02d}"
