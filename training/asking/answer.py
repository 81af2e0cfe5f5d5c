"""The answer to a question, as far as it is known. Read from the notebook's cells and their runs, so it is right at any
time, whoever has run them. No torch in here."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from scalebook.training.asking import sizes
from scalebook.training.asking.answer_rows import (
    FIGURES,
    AnswerRow,
    Figure,
    Findings,
    PlannedRow,
    decided_by,
    plan_words,
    rates_words,
    sentence,
)
from scalebook.training.asking.best_point import best_point, finished, may_undo, tried_points
from scalebook.training.asking.expected import expected
from scalebook.training.asking.previews import taken
from scalebook.training.asking.recipe import Machine, Recipe
from scalebook.training.asking.recipes import recipe_named
from scalebook.training.base import Workspace
from scalebook.training.experiments import Description, Experiment, config_hash
from scalebook.training.experiments.search import SearchSpec, summary
from scalebook.training.jobs import this_machine
from scalebook.training.notebook import AnswerCell, ClaimCell, Notebook, best, results
from scalebook.training.notebook.claims import (
    ClaimRow,
    Confidence,
    EvidenceReader,
    Judgement,
    crossing,
    judge_all,
    ratio_interval,
)
from scalebook.training.search import SearchFolder, search_requests
from scalebook.training.tracking import MetricCurve, RunReader

FEWEST: Final = 3
BEYOND: Final = (
    "A better value may be outside the range of the search. Set the experiment to the value at the edge, and ask again."
)


class AnswerReader:
    """Reads the answers of a notebook. `notebook` is the file's name."""

    def __init__(
        self, workspace: Workspace, reader: RunReader, notebook: str, nb: Notebook, description: Description
    ) -> None:
        self.workspace, self.reader, self.notebook, self.nb, self.description = (
            workspace, reader, notebook, nb, description,
        )  # fmt: skip
        self.evidence = EvidenceReader(workspace, reader, notebook, nb, description)

    def answer(self, cell: AnswerCell, judged: Mapping[str, Judgement] | None = None) -> Findings:
        """What is known. `judged`: the claims of the notebook, where they are known already."""
        recipe = recipe_named(cell.question)
        start = Findings(recipe.question, "", figure=recipe.figure, metric=cell.metric, target=cell.target)
        comparison = next((one for one in self.nb.comparisons() if one.name == cell.comparison), None)
        if comparison is None:
            begun = cell.pilot is not None
            words = f"Not answered yet: {self._tried(cell)}." if begun else "Not started."
            return replace(start, headline=words, state="under way" if begun else "not begun")
        judgements = {name: one for name, one in (judged or judge_all(self.evidence)).items() if name in cell.claims}
        by_side = {str(one.cell.runs[0]): one for one in judgements.values() if one.cell.runs}
        first, *others = comparison.runs
        base = next((_missed(one.rows[0]) for one in by_side.values() if one.rows), False)
        rows = [replace(self._row(recipe, cell, first, first, None), missed=base)]
        rows += [self._row(recipe, cell, name, first, by_side.get(name)) for name in others]
        return self._said(recipe, replace(start, planned=self._planned(recipe, cell)), rows, list(by_side.values()))

    def _tried(self, cell: AnswerCell) -> str:
        """How far the searches are, in words."""
        if not cell.searches:
            return "the pilot run, a short first run that shows how long training takes, has not ended"
        searches = {name: search for name in cell.searches if (search := self._search(cell, name)) is not None}
        progress = [one for one in (folder.progress() for folder, _ in searches.values()) if one is not None]
        done, whole = sum(one.done for one in progress), sum(one.trials for one in progress)
        if done < whole or not whole:
            return f"{done} of {whole} runs of the searches have ended" if whole else "the searches have not started"
        further = []
        for name, (folder, spec) in searches.items():
            chosen = best_point(self.reader, folder, spec, cell.metric, cell.goal != "max", cell.target)
            words = sizes.edges(chosen.tried, chosen.point) if chosen is not None else ()
            side = recipe_named(cell.question).side_words(cell, name, spec.experiment)
            further += [f"{side}: {edge}" if len(searches) > 1 else edge for edge in words]
        beyond = (
            ". The search continues beyond the values tried so far, because the best point is at an edge "
            f"({'; '.join(further)})"
        )
        return f"all {whole} runs of the searches have ended{beyond if further else ''}"

    def _planned(self, recipe: Recipe, cell: AnswerCell) -> Sequence[PlannedRow]:
        base = self.nb.experiment(cell.experiment)
        if not recipe.planned or base is None:
            return ()
        here = this_machine()
        experiment = base.experiment(self.description)
        return expected(self.workspace, experiment, Machine(len(here.cores), len(here.gpus)).slots(experiment))

    def _row(self, recipe: Recipe, cell: AnswerCell, name: str, first: str, judgement: Judgement | None) -> AnswerRow:
        side = self.nb.experiment(name)
        if side is None:
            return AnswerRow(name, name, why="its experiment was removed")
        experiment = side.experiment(self.description)
        by_seed = results(self.reader, self.notebook, side, self.description, self.nb)
        done = sum(1 for one in by_seed if one.run is not None and not one.stale and one.run.outcome == "finished")
        row = AnswerRow(
            name,
            recipe.side_words(cell, name, experiment),
            "simulated" if experiment.strategy.is_simulated else "measured",
            done,
            experiment.rate.applied,
            experiment.batch.per_worker,
            same=name != first and self._same(experiment, first),
            own_rate=self._own_rate(cell, name),
            edges=self._edges(cell, name, experiment),
        )
        if judgement is None:
            return row
        judged = judgement.rows[-1]
        level = judged.claimed.level if judged.claimed is not None else None
        verdict, why = judgement.verdict, judged.why or judged.evidence.lacking
        if doubt := self._doubt(cell, judgement.cell, judgement.verdict, judged.claimed):
            verdict, why = "not resolved", doubt
        found_ratios = {figure: self._ratio(cell, name, first, figure, level) for figure in FIGURES}
        ratios = {figure: ratio for figure, ratio in found_ratios.items() if ratio is not None}
        return replace(row, ratios=ratios, verdict=verdict, why=why, missed=_missed(judged))

    def _same(self, experiment: Experiment, first: str) -> bool:
        other = self.nb.experiment(first)
        return other is not None and config_hash(experiment) == config_hash(other.experiment(self.description))

    def _own_rate(self, cell: AnswerCell, name: str) -> float | None:
        """The learning rate that a side's search began with: its own. None where not the rate alone was searched."""
        search = self.nb.search(cell.searches.get(name) or "")
        if search is None or "batch_size" in search.body.get("space", {}):
            return None
        return Experiment.read(search.body.get("config"), self.description).rate.applied

    def _edges(self, cell: AnswerCell, name: str, experiment: Experiment) -> Sequence[str]:
        search = self._search(cell, name)
        if search is None:
            return ()
        folder, spec = search
        own = {"learning_rate": experiment.rate.requested, "batch_size": experiment.batch.per_worker}
        point = {key: value for key, value in own.items() if spec.has(key)}
        return sizes.edges(tried_points(folder, spec), point)

    def _search(self, cell: AnswerCell, name: str) -> tuple[SearchFolder, SearchSpec] | None:
        """The search for a side's learning rate; None where there is none, or it has not begun."""
        folder = search_requests.of_cell(self.workspace, self.notebook, cell.searches.get(name) or "")
        return None if folder is None else (folder, folder.spec(self.description))

    def _doubt(self, cell: AnswerCell, claim: ClaimCell, verdict: str, claimed: Confidence | None) -> str:
        """Why a definite verdict may hold only for the point that was chosen for the worse side; "" if it holds.

        That point was chosen by one run of each.
        """
        bound = claim.at_least if claim.at_most is None else claim.at_most
        loser = str(claim.against if verdict == "supported" else claim.runs[0])
        searched = self._search(cell, loser)
        if verdict == "not resolved" or claimed is None or not claimed.value > 0 or not bound or searched is None:
            return ""
        folder, spec = searched
        lower = cell.goal != "max"
        by_time = claim.figure == "seconds" and spec.has("batch_size")
        figure: Figure = "best" if claim.figure == "best" else "seconds" if by_time else "samples"
        amounts = [side.amounts for side in self.evidence.sides(replace(claim, figure=figure))]
        logs = [[math.log(amount.value) for amount in side.values()] for side in amounts]
        spread = math.sqrt(statistics.fmean(map(statistics.variance, logs)))
        sign = -1 if figure == "best" and not lower else 1
        expected = sign * statistics.fmean(logs[1 if loser == claim.runs[0] else 0])
        chosen, others = self._searched(cell, loser, folder, figure)
        if by_time:  # runs of a search share the machine, so their times compare only with each other
            expected, spread = (sign * chosen if chosen is not None else -math.inf), math.sqrt(2) * spread
        margin = abs(math.log(claimed.value / bound))
        doubted = [point for point, value in others if may_undo(sign * value, expected, spread, margin)]
        if not doubted:
            return ""
        side = self.nb.experiment(loser)
        assert side is not None, "the claim names this experiment, so the notebook has it"
        called = recipe_named(cell.question).side_words(cell, loser, side.experiment(self.description))
        words = f"{called} may be just as good at {summary(spec, doubted[0])}"
        return (
            f"{words}, because the two points were compared with only one run each, and the difference is smaller "
            "than the difference between seeds"
        )

    def _searched(
        self, cell: AnswerCell, loser: str, folder: SearchFolder, figure: Figure
    ) -> tuple[float | None, list[tuple[Mapping[str, Any], float]]]:
        """The logarithm of what the search has found at the point that was chosen, and at the others."""
        side = self.nb.experiment(loser)
        assert side is not None, "the claim names this experiment, so the notebook has it"
        experiment, spec = side.experiment(self.description), folder.spec(self.description)
        own = {"learning_rate": experiment.rate.requested, "batch_size": experiment.batch.per_worker}
        chosen, others = None, []
        for point, curve in finished(self.reader, folder, spec, cell.metric):
            amount = _amount(curve, figure, cell.target, cell.goal != "max")
            if amount is not None and all(own.get(name, value) == value for name, value in point.items()):
                chosen = math.log(amount)
            elif amount is not None:
                others.append((point, math.log(amount)))
        return chosen, others

    def _ratio(self, cell: AnswerCell, name: str, first: str, figure: Figure, level: float | None) -> Confidence | None:
        """Of one figure, at the level of the claim, which allows for several looks."""
        if figure != "best" and cell.target is None:
            return None
        claim = ClaimCell(
            "", "", [name], first, figure, cell.metric, None if figure == "best" else cell.target, goal=cell.goal
        )
        base, side = self.evidence.sides(claim)
        if figure in ("seconds", "bytes") and base.is_simulated != side.is_simulated:
            return None
        interval = ratio_interval(side.amounts, base.amounts)
        return interval if interval is None or level is None else replace(interval, level=level)

    # --- in words -----------------------------------------------------------------------------------------------------

    def _said(
        self, recipe: Recipe, start: Findings, rows: Sequence[AnswerRow], judged: Sequence[Judgement]
    ) -> Findings:
        baseline, sides = rows[0], rows[1:]
        compared = [row for row in sides if decided_by(start, row) in row.ratios]
        if not compared:
            done, whole = sum(row.seeds for row in rows), len(rows) * FEWEST
            words = f"Not answered yet: {done} of at least {whole} runs with fresh seeds have finished."
            if done >= whole and (whys := [f"{row.words}: {row.why}" for row in sides if row.why]):
                return replace(start, headline=f"Not resolved: {'; '.join(whys)}.", rows=rows, state="not resolved")
            return replace(start, headline=words, rows=rows, state="under way")
        if all(row.missed for row in rows):
            goal = f"{start.metric} {start.target:g}"
            words = f"No side reached {goal} in these runs. Choose a target that is easier to reach."
            return replace(start, headline=words, rows=rows, state="not resolved")
        resolved = [row for row in compared if row.verdict in ("supported", "refuted")]
        hopeless = {row.cell for row in sides if row.missed}
        open_claims = [one for one in judged if one.verdict == "not resolved" and str(one.cell.runs[0]) not in hopeless]
        more = max((one.resolved_by or 0 for one in open_claims), default=0)
        now = max(row.seeds for row in rows)
        same = all(row.same for row in sides)
        more = more if more > now and len(resolved) < len(sides) and not same else 0
        sentences = [sentence(start, row, baseline) for row in compared]
        sentences += [words] if (words := rates_words(rows)) else []
        sentences += [f"{row.words}: {edge}. {BEYOND}" for row in rows for edge in row.edges]
        sentences += [f"{row.words}: none of its runs reached the target." for row in rows if row.missed]
        unclear = [row for row in sides if row not in resolved and row.why]
        sentences += [f"{row.words}: {row.why}." for row in unclear]
        sentences += [plan_words(start.planned)] if start.planned else []
        headline = recipe.headline(start, compared, baseline)
        is_settled = (bool(resolved) or (same and recipe.figure != "best")) and not headline.startswith("Not resolved")
        state: Literal["answered", "not resolved"] = "answered" if is_settled else "not resolved"
        return replace(
            start, headline=headline, sentences=sentences, rows=rows, state=state,
            more_seeds=more, more_s=self._more_s(rows, more - now) if more else None,
        )  # fmt: skip

    def _more_s(self, rows: Sequence[AnswerRow], seeds: int) -> float:
        """About how long so many further seeds of each side take, one run after the other."""
        cells = filter(None, (self.nb.experiment(row.cell) for row in rows))
        by_side = [results(self.reader, self.notebook, side, self.description, self.nb) for side in cells]
        runs = [one.run for by_seed in by_side for one in by_seed]
        took = [taken(self.workspace, run).whole_s for run in runs if run is not None and run.ended is not None]
        seconds = [whole_s + sizes.BETWEEN_S for whole_s in took]
        return seeds * len(rows) * sum(seconds) / max(1, len(seconds))


def _missed(row: ClaimRow) -> bool:
    """Whether none of the runs of a side reached the target."""
    return bool(row.evidence.amounts) and row.censored == len(row.evidence.amounts)


def _amount(curve: MetricCurve, figure: Figure, target: float | None, lower: bool) -> float | None:
    """What the run of a point took or reached; None where it missed the target, or that is not above 0."""
    if figure == "best" or target is None:
        value = best(curve, lower)
    else:
        amount = crossing(*curve.on(figure), target, lower)
        value = None if amount is None or amount.censored else amount.value
    return value if value is not None and math.isfinite(value) and value > 0 else None
