"""The evidence for each side of a claim: runs of an experiment, or of the best point of a part of a search, by seed."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from scalebook.training.base import ConfigError, Workspace, code_changes
from scalebook.training.base.files import yaml_flow
from scalebook.training.experiments import Description, Experiment
from scalebook.training.experiments.search import Dimension, SearchSpec, read_search, summary
from scalebook.training.notebook.cells import ClaimCell, Notebook, Side
from scalebook.training.notebook.claim_checks import canonical
from scalebook.training.notebook.claims.claim_locks import RecordedClaims, known_of, names_of, recorded_claims
from scalebook.training.notebook.claims.intervals import Amount, crossing
from scalebook.training.notebook.claims.looks import ClaimLook, JudgedCell
from scalebook.training.notebook.offered_metrics import unnamed
from scalebook.training.notebook.read_results import results
from scalebook.training.notebook.result_row import best, lost_workers, shared_numbers
from scalebook.training.search import SearchFolder, search_folder, search_requests
from scalebook.training.search.study import TrialRecord, at_rest, read_study
from scalebook.training.tracking import Direction, MetricCurve, RunReader, RunRecord, directions, names, own_metrics

LOST: Final = "lost a worker, and so trained with fewer workers"
"""Why a run is not taken as evidence."""


@dataclass(frozen=True)
class SeedOutcome:
    """What a point showed with one seed. `best` value of the metric, smaller is better; 0 if none is read."""

    amount: Amount
    best: float = 0.0


def best_of(
    trials: Sequence[TrialRecord], results: Mapping[int, Sequence[SeedOutcome]], lower: bool, space: Sequence[Dimension]
) -> TrialRecord:
    """The best of the trials that are in `results`, by number, each with the same seeds; one at least.

    The best one reached the target with the most seeds; then it has the best mean figure over those (`lower`: the
    smaller). A run that missed has no figure: its amount says when it was ended, not how good it was. Amounts are as
    coarse as validations, and there is none if no seed reached the target; then the mean of the best values decides,
    then the distance to the middle of what was tried, so that the points on both sides of the best one are known, and
    then which was tried first.
    """

    def mark(trial: TrialRecord) -> tuple[int, float, float, float, int]:
        seeds = results[trial.number]
        reached = [seed.amount.value for seed in seeds if not seed.amount.censored]
        figure = statistics.fmean(reached) * (1 if lower else -1) if reached else 0.0
        best = statistics.fmean(seed.best for seed in seeds) if seeds else 0.0
        return len(seeds) - len(reached), figure, best, _from_middle(trial, trials, space), trial.number

    return min((trial for trial in trials if trial.number in results), key=mark)


def by_others(
    trials: Sequence[TrialRecord], results: Mapping[int, Sequence[SeedOutcome]], lower: bool, space: Sequence[Dimension]
) -> list[Amount]:
    """For each seed, in their order, the amount at the point that the other seeds choose, by `best_of`."""
    seeds = len(next(iter(results.values())))
    amounts = []
    for place in range(seeds):
        others = {number: [*seen[:place], *seen[place + 1 :]] for number, seen in results.items()}
        chosen = best_of(trials, others, lower, space)
        amounts.append(results[chosen.number][place].amount)
    return amounts


def tried(dimension: Dimension, trials: Sequence[TrialRecord]) -> list[float]:
    """The values that were tried, in order; none of a dimension that has no order."""
    return sorted({trial.point[dimension.name] for trial in trials}) if dimension.ordered else []


def _from_middle(trial: TrialRecord, trials: Sequence[TrialRecord], space: Sequence[Dimension]) -> float:
    """Ranks between its values and the middle ones, over all dimensions."""
    ranks = [(values.index(trial.point[dim.name]), len(values)) for dim in space if (values := tried(dim, trials))]
    return sum(abs(rank - (count - 1) / 2) for rank, count in ranks)


@dataclass(frozen=True)
class Evidence:
    """The evidence for one side. `amounts` by seed; `lacking` says why some are missing, "" if none is."""

    label: str
    amounts: Mapping[int, Amount] = field(default_factory=dict)
    left_out: Mapping[int, Amount] = field(default_factory=dict)
    """By seed, at the point that the other seeds choose; empty where there is no choice."""
    run_ids: Sequence[str] = ()
    lacking: str = ""
    point: str = ""
    """The point that stands for a part of a search, in words."""
    chosen: str = ""
    """Among which points it was chosen, in words."""
    lost: str = ""
    """Which of its runs have lost workers, in words."""
    none_reached: bool = False
    """None of the points reached the target."""
    at_edge: str = ""
    """Dimensions of which the chosen value is the first or last one tried."""
    is_simulated: bool = False
    is_own: bool = False
    """A run's metric is not computed from all workers' data together."""
    seeds: int = 0
    """Number of seeds that are planned."""
    points: int = 1
    """Number of points among which it is to be chosen."""
    cell: str = ""
    """The experiment or search."""
    earlier: Sequence[Amount] = ()
    """Amounts of finished runs of an earlier config, if there are none of the config as it stands."""


@dataclass(frozen=True)
class RecordedSearch:
    """A search that ran: its identity and body as recorded, and how its trials are read. `modules`: the record of the
    user's own modules that it began with."""

    identity: str
    body: Mapping[str, Any]
    trials: Callable[[SearchSpec], Sequence[TrialRecord]]
    modules: str = ""

    def read(self, description: Description) -> "SearchedClaim":
        """ConfigError where it cannot be read."""
        spec = read_search(self.body, None, description)
        return SearchedClaim(spec, self.trials(spec))


@dataclass(frozen=True)
class SearchedClaim:
    """The search of a claim, with its trials."""

    spec: SearchSpec
    records: Sequence[TrialRecord]

    @property
    def seeds(self) -> list[int]:
        return self.spec.experiment.seeds(self.spec.seeds)


class EvidenceReader:
    """Reads the evidence of claims, each run, each curve and each search once. `notebook` is the file's name."""

    counts_looks = True
    """Whether verdicts allow for several looks. Those in archives of form 1 do not."""

    def __init__(
        self, workspace: Workspace, reader: RunReader, notebook: str, nb: Notebook, description: Description
    ) -> None:
        self.workspace, self.reader, self.notebook = workspace, reader, notebook
        self.nb, self.description = nb, description
        self.code = code_changes.CodeNow(description.folder)
        self._known_runs: dict[str, RunRecord | None] = {}
        self._known_curves: dict[tuple[str, str], MetricCurve] = {}
        self._known_searches: dict[str | None, SearchedClaim | str] = {}
        self._known_specs: dict[str, SearchSpec | None] = {}
        self._known_hashes: dict[tuple[str, ...], dict[str, str]] = {}
        self.direction = Direction(True, "guess")
        """The better direction of the metric of the claim that was read last, and who says so."""

    def locked_claims(self, hashed: str) -> RecordedClaims:
        """What the runs of a config or search record of claims."""
        return recorded_claims(self.reader, self.notebook, hashed)

    def hashes(self, claim: ClaimCell) -> dict[str, str]:
        """By name, the hashes of what the experiments and searches of a claim run."""
        cells = tuple(names_of(claim))
        if cells not in self._known_hashes:
            named = known_of(self.nb, claim, self.description)
            self._known_hashes[cells] = {name: cell.hash for name, cell in named.items()}
        return self._known_hashes[cells]

    def record_look(self, look: ClaimLook, runs: Sequence[str]) -> str:
        """Record it with these runs. Why that failed, or ""."""
        from mlflow.exceptions import MlflowException

        text = look.text
        if len(text) > names.LONGEST_TAG:
            look = replace(
                look,
                cells={hashed: JudgedCell(cell.seeds, searched=cell.searched) for hashed, cell in look.cells.items()},
            )
            text = look.text
        try:
            for run_id in runs:
                self.reader.client.set_tag(run_id, f"{names.TAG_LOOK}{look.digest}", text)
        except MlflowException as error:
            return str(error).splitlines()[0][:200]
        return ""

    def sides(self, cell: ClaimCell) -> list[Evidence]:
        """The evidence for all sides of a claim without ratios, `against` first."""
        ran = self._ran(cell) if any(isinstance(side, dict) for side in cell.sides) else ""
        runs, experiments = self._all_of(cell, ran)
        callbacks = [experiment.callbacks for experiment in experiments]
        self.direction = directions.of_runs(cell.metric, cell.goal, [run.tags for run in runs], callbacks)
        return [
            self._experiment(cell, side) if isinstance(side, str) else self._part_of(cell, side, ran)
            for side in cell.sides
        ]

    def _part_of(self, cell: ClaimCell, side: dict[str, Any], ran: SearchedClaim | str) -> Evidence:
        seeds, points = self._planned(cell, side)
        if isinstance(ran, str):
            evidence = _without(side, ran)
        else:
            evidence = self._part(cell, side, ran, self._matching(cell, side, ran))
        return replace(evidence, seeds=seeds, points=points, cell=cell.search or "")

    def _planned(self, cell: ClaimCell, side: Mapping[str, Any]) -> tuple[int, int]:
        """Seeds and points of a part, as its search says them; 0 and 1 where that cannot be read."""
        try:
            spec, part = self._spec(cell.search or ""), canonical(self.nb, cell, side, self.description)
        except ConfigError:
            return 0, 1
        if spec is None:
            return 0, 1
        named = sum(all(point.get(name) == value for name, value in part.items()) for point in spec.points)
        free = [len(dimension.choices) for dimension in spec.space if dimension.name not in part and dimension.choices]
        return spec.seeds, max(1, named or min(spec.trials, math.prod(free)))

    def _spec(self, name: str) -> SearchSpec | None:
        """The search as the notebook has it; None where there is none that can be read."""
        if name not in self._known_specs:
            self._known_specs[name] = None
            if (search := self.nb.search(name)) is not None:
                with suppress(ConfigError):
                    self._known_specs[name] = read_search(
                        search.body, self.nb.base(search, self.description), self.description
                    )
        return self._known_specs[name]

    def named(self, cell: ClaimCell) -> ClaimCell:
        """The claim with the metric that it is judged by filled in where it, or one of its ratios, names none."""
        if cell.ratios:
            pairs = zip(cell.ratios, cell.plain, strict=True)
            sides: list[Side] = [replace(ratio, metric=self.named(plain).metric) for ratio, plain in pairs]
            return replace(cell, against=sides.pop(0) if cell.against is not None else None, runs=sides)
        if cell.metric or not needs_curve(cell):
            return cell
        runs, experiments = self._all_of(cell, self._ran(cell) if cell.search else "")
        return replace(cell, metric=unnamed(experiments, runs))

    def _all_of(self, cell: ClaimCell, ran: "SearchedClaim | str") -> tuple[list[RunRecord], list[Experiment]]:
        """Runs of all experiments that it names, one of its search, and these experiments."""
        candidates = [self.nb.experiment(side) for side in cell.sides if isinstance(side, str)]
        cells = [candidate for candidate in candidates if candidate is not None]
        experiments = [one.experiment(self.description) for one in cells]
        runs = [
            result.run
            for one in cells
            for result in results(self.reader, self.notebook, one, self.description, self.nb, None, self.code)
            if result.run is not None and not result.stale
        ]
        if isinstance(ran, SearchedClaim):
            experiments.append(ran.spec.experiment)
            first = next((run for record in ran.records for run in self._runs(record, ran.seeds).values()), None)
            runs += [first] if first is not None else []
        return runs, experiments

    # --- experiments -----------------------------------------------------------------------------------------------

    def _experiment(self, cell: ClaimCell, name: str) -> Evidence:
        experiment = self.nb.experiment(name)
        if experiment is None:
            return Evidence(name, lacking="no such experiment in this notebook")
        by_seed = results(self.reader, self.notebook, experiment, self.description, self.nb, None, self.code)
        finished = {
            result.seed: result.run
            for result in by_seed
            if result.run is not None and not result.stale and result.run.outcome == "finished"
        }
        runs = _as_configured(finished, experiment.experiment(self.description))
        others = {
            LOST if result.seed in finished else result.run.outcome
            for result in by_seed
            if result.run and result.seed not in runs and not result.stale
        }
        others |= {f"from an earlier {result.changed.removeprefix('the ')}" for result in by_seed if result.stale}
        why = ", ".join(sorted(others)) or "not run"
        lacking = (
            "" if len(runs) == len(by_seed) else f"{len(runs)} of {len(by_seed)} runs can be used (the others: {why})"
        )
        old = [result.run for result in by_seed if result.stale and result.run and result.run.outcome == "finished"]
        earlier = [] if runs else [amount for run in old if (amount := self._amount(cell, run)) is not None]
        evidence = self._told(cell, name, runs, lacking)
        lost = lost_workers([*finished.values()])
        return replace(evidence, lost=lost, seeds=len(by_seed), earlier=earlier, cell=name)

    # --- parts of a search -----------------------------------------------------------------------------------------

    def _ran(self, cell: ClaimCell) -> SearchedClaim | str:
        """The newest search of the cell, or why there is none to judge by."""
        if cell.search not in self._known_searches:
            self._known_searches[cell.search] = self._read(cell.search)
        return self._known_searches[cell.search]

    def _read(self, name: str | None) -> SearchedClaim | str:
        search = self.nb.search(name or "")
        if search is None:
            return f"no search {name} in this notebook"
        try:
            searched = self.searched(search.name)
            if searched is None:
                return f"the search {search.name} has not been run"
            base = self.nb.base(search, self.description)
            if changed := search_requests.what_changed(
                searched.identity, searched.modules, search.body, base, self.description, self.code
            ):
                return f"the search {search.name} is stale: {changed}"
            return searched.read(self.description)
        except ConfigError as error:
            return f"the search {search.name} cannot be read: {error}"

    def searched(self, name: str) -> RecordedSearch | None:
        """The newest search of this cell, None where there is none. ConfigError where it cannot be read."""
        folder = search_requests.of_cell(self.workspace, self.notebook, name)
        if folder is None:
            return None
        request = folder.request()
        return RecordedSearch(request.identity, folder.body(), lambda spec: _trials(folder, spec), request.modules)

    def _matching(self, cell: ClaimCell, side: Mapping[str, Any], ran: SearchedClaim) -> list[TrialRecord]:
        try:
            part = canonical(self.nb, cell, side, self.description)
        except ConfigError:
            return []
        return [
            record for record in ran.records if all(record.point.get(name) == value for name, value in part.items())
        ]

    def _part(
        self, cell: ClaimCell, side: Mapping[str, Any], ran: SearchedClaim, trials: Sequence[TrialRecord]
    ) -> Evidence:
        """The point with the best mean over the seeds stands for the side."""
        if not trials or any(trial.state in ("waiting", "running") for trial in trials):
            done = sum(trial.state not in ("waiting", "running") for trial in trials)
            return _without(side, f"{done} of {len(trials)} points tried" if trials else "the search has no such point")
        part = canonical(self.nb, cell, side, self.description)
        label, choice = summary(ran.spec, part), len(trials) > 1
        if not choice:
            evidence = self._finished(cell, label, trials[0], ran)
            return replace(evidence, point=summary(ran.spec, trials[0].point))
        by_trial = {trial.number: by_seed for trial in trials if (by_seed := self._shown(cell, trial, ran)) is not None}
        if not by_trial:
            return _without(side, "no point of the search has finished with all seeds")
        lower, space = self._lower(cell), ran.spec.space
        chosen = best_of(trials, by_trial, lower, space)
        left_out = dict(zip(ran.seeds, by_others(trials, by_trial, lower, space), strict=True))
        evidence = self._finished(cell, label, chosen, ran)
        return replace(
            evidence,
            left_out=left_out,
            point=summary(ran.spec, chosen.point),
            chosen=f"of {len(by_trial)}"
            if len(by_trial) == len(trials)
            else f"of {len(by_trial)} points that finished; {len(trials)} were tried",
            none_reached=all(seed.amount.censored for seed in by_trial[chosen.number]),
            at_edge=_at_edge(ran, chosen, trials),
        )

    def _finished(self, cell: ClaimCell, label: str, trial: TrialRecord, ran: SearchedClaim) -> Evidence:
        finished = self._runs(trial, ran.seeds)
        runs = _as_configured(finished, ran.spec.experiment)
        lacking = ""
        if len(runs) < len(ran.seeds):
            why = LOST if len(finished) == len(ran.seeds) else f"{trial.failure or trial.state}: {trial.cause}"
            lacking = f"{len(runs)} of {len(ran.seeds)} seeds finished; {why}"
        return replace(self._told(cell, label, runs, lacking), lost=lost_workers([*finished.values()]))

    def _shown(self, cell: ClaimCell, trial: TrialRecord, ran: SearchedClaim) -> list[SeedOutcome] | None:
        """What it showed with each seed; None where one of them is missing."""
        runs = _as_configured(self._runs(trial, ran.seeds), ran.spec.experiment).values()
        by_seed = [SeedOutcome(amount, self._best(cell, run)) for run in runs if (amount := self._amount(cell, run))]
        return by_seed if len(by_seed) == len(ran.seeds) else None

    def _lower(self, cell: ClaimCell) -> bool:
        """Of the figure that is claimed."""
        return self.direction.lower if cell.figure == "best" else cell.figure in names.AXES

    def _best(self, cell: ClaimCell, run: RunRecord) -> float:
        """The best value of the metric, the smaller the better; 0 where the claim reads no curve."""
        if not needs_curve(cell):
            return 0.0
        lower = self.direction.lower
        value = best(self._curve(run.id, cell.metric), lower)
        return math.inf if value is None else value if lower else -value

    def _runs(self, trial: TrialRecord, seeds: Sequence[int]) -> dict[int, RunRecord]:
        """Its finished runs, by seed."""
        by_seed: dict[int, RunRecord] = {}
        for seed in seeds:
            if (run_id := trial.runs.get(seed)) is None:
                continue
            run = self._run(run_id)
            if run is not None and run.outcome == "finished":
                by_seed[seed] = run
        return by_seed

    def _run(self, run_id: str) -> RunRecord | None:
        """None where it was deleted, which is said as lacking."""
        if run_id not in self._known_runs:
            try:
                self._known_runs[run_id] = self.reader.run(run_id)
            except KeyError:
                self._known_runs[run_id] = None
        return self._known_runs[run_id]

    def _curve(self, run_id: str, metric: str) -> MetricCurve:
        if (run_id, metric) not in self._known_curves:
            self._known_curves[run_id, metric] = self.reader.curve(run_id, metric)
        return self._known_curves[run_id, metric]

    # --- figures ---------------------------------------------------------------------------------------------------

    def _told(self, cell: ClaimCell, label: str, runs: Mapping[int, RunRecord], lacking: str) -> Evidence:
        by_seed = {seed: self._amount(cell, run) for seed, run in runs.items()}
        amounts = {seed: amount for seed, amount in by_seed.items() if amount is not None}
        if len(amounts) < len(runs):
            silent = f"{len(runs) - len(amounts)} runs recorded no {cell.metric if needs_curve(cell) else cell.figure}"
            lacking = f"{lacking}; {silent}".removeprefix("; ")
        if shared := shared_numbers([*runs.values()]):
            lacking = f"{lacking}; {shared}".removeprefix("; ")
        is_simulated = any(names.is_simulated(run.tags) for run in runs.values())
        run_ids = [run.id for run in runs.values()]
        own = needs_curve(cell) and any(own_metrics.is_own(run.tags, cell.metric) for run in runs.values())
        return Evidence(
            label, amounts, run_ids=run_ids, lacking=lacking, is_simulated=is_simulated, is_own=own
        )  # fmt: skip

    def _amount(self, cell: ClaimCell, run: RunRecord) -> Amount | None:
        if not needs_curve(cell):
            value = run.metrics.get(f"perf/{cell.figure}")
            return None if value is None else Amount(value)
        curve = self._curve(run.id, cell.metric)
        lower = self.direction.lower
        if cell.figure == "best":
            value = best(curve, lower)
            return None if value is None else Amount(value)
        if not curve.values or cell.target is None or cell.figure not in ("updates", "samples", "seconds", "bytes"):
            return None
        return crossing(*curve.on(cell.figure), cell.target, lower)


def needs_curve(cell: ClaimCell) -> bool:
    """Whether the figure is read off the curve of its metric; else it is a metric of its own."""
    return cell.figure == "best" or cell.figure in names.AXES


def _as_configured(runs: Mapping[int, RunRecord], experiment: Experiment) -> dict[int, RunRecord]:
    """The runs that trained with as many workers as their config says: without those that have lost some, unless the
    config lets workers leave."""
    if experiment.strategy.least is not None:
        return dict(runs)
    return {seed: run for seed, run in runs.items() if not run.tags.get(names.TAG_WORKERS_LOST)}


def _without(side: Mapping[str, Any], lacking: str) -> Evidence:
    return Evidence(yaml_flow.flow(side).strip("{}"), lacking=lacking)


def _trials(folder: SearchFolder, spec: SearchSpec) -> Sequence[TrialRecord]:
    folder.require_trust(reading=True)
    request = folder.request()
    records = read_study(request.storage, request.study, spec)
    return at_rest(records) if folder.state() in search_folder.ENDED else records


def _at_edge(ran: SearchedClaim, chosen: TrialRecord, trials: Sequence[TrialRecord]) -> str:
    edges = []
    for dimension in ran.spec.space:
        values = tried(dimension, trials)
        if len(values) > 1 and chosen.point[dimension.name] in (values[0], values[-1]):
            edges.append(dimension.name)
    return ", ".join(edges)
