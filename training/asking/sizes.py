"""How much of a question fits into its budget: how many learning rates, seeds and sides, and how long a training."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from scalebook.training.asking.recipe import Machine, Side
from scalebook.training.base import ConfigError, roughly
from scalebook.training.experiments import Experiment
from scalebook.training.notebook import answer_body

FULL: Final = (7, 5)
"""Learning rates for each side, and fresh seeds, where the budget allows them."""
PLANS: Final = (FULL, (5, 5), (5, 3), (3, 3))
SHARES: Final = (1.0, 0.5, 0.25, 0.1)
"""Shares of a full training."""
PILOT_SHARE: Final = 0.2
"""Share of the budget that the pilot run may take."""
PILOT_LEAST_S: Final = 20.0
SPARE: Final = 0.9
"""Share of what is left that is planned for: runs vary."""
STARTING_S: Final = 2.0
"""About what a run takes besides its training, where no run has shown it."""
BETWEEN_S: Final = 0.3
"""About what passes between two runs of a question."""
FURTHER: Final = 2
"""Points that a search goes on with if its best one is at an edge."""
SOONER, LATER = 0.8, 1.4
"""How far the time may be from what is expected: some sides take longer than the first one, other programs run."""
DRIVER_S: Final = 5.0
"""About what the searches take before their first runs."""
VALIDATIONS: Final = 10
"""Validations of a run, between which it is read off when the target was reached."""
BATCHES: Final = (0.5, 1, 2, 4)
"""Batch sizes that are tried, as multiples of the experiment's own."""
PARALLEL_COST: Final = 1.3
"""About how much longer runs take that run side by side."""


@dataclass(frozen=True)
class RunTime:
    """The seconds of a run: from the start of its process to its end without its training, and those of a full
    training, which includes validation."""

    starting_s: float = STARTING_S
    training_s: float = 0.0

    def of(self, share: float) -> float:
        """The seconds of a run that makes a share of the training, and until the next one begins."""
        return self.starting_s + share * self.training_s + BETWEEN_S

    @property
    def whole_s(self) -> float:
        return self.starting_s + self.training_s


@dataclass(frozen=True)
class Sizes:
    """What is done. `share`: the part of the experiment's own training that every run makes."""

    sides: int
    rates: int
    seeds: int
    share: float
    seconds: float = 0.0
    """About how long it takes."""
    most_s: float = 0.0
    """How long it may take, with searches that go on."""


def fitting(sides: Sequence[Side], machine: Machine, run: RunTime, left_s: float, one_by_one: bool) -> Sizes | None:
    """The largest that fits into `left_s`; None where nothing does. `run`: a run of the experiment. `one_by_one`:
    whether runs with fresh seeds have the machine for themselves."""
    for share in SHARES[:2]:
        for rates, seeds in PLANS:
            if fits := _within(sides, machine, Sizes(len(sides), rates, seeds, share), run, left_s, one_by_one):
                return fits
    for count in range(len(sides), 1, -1):
        for share in SHARES:
            rates, seeds = PLANS[-1]
            if fits := _within(sides, machine, Sizes(count, rates, seeds, share), run, left_s, one_by_one):
                return fits
    return None


def pilot_s(budget_s: float) -> float:
    """Seconds that the pilot run may take."""
    return max(PILOT_LEAST_S, PILOT_SHARE * budget_s)


def required(
    sides: Sequence[Side],
    machine: Machine,
    run: RunTime | None,
    budget_s: float,
    one_by_one: bool,
    spent_s: float | None = None,
) -> Sizes:
    """As `fitting` into what is left of the budget: the only rule for which budgets are too short. `run`: None where no
    training has been timed, `spent_s`: None before the pilot run. ConfigError where nothing fits."""
    one = run or RunTime()
    spent = min(one.whole_s, pilot_s(budget_s)) if spent_s is None else spent_s
    fits = fitting(sides, machine, one, budget_s - spent, one_by_one)
    if fits is not None:
        return fits
    rates, seeds = PLANS[-1]
    rest_s = expected_s(sides[:2], machine, Sizes(2, rates, seeds, SHARES[-1]), one, one_by_one) / SPARE
    pilot = (
        min(one.whole_s, max(PILOT_LEAST_S, PILOT_SHARE / (1 - PILOT_SHARE) * rest_s)) if spent_s is None else spent_s
    )
    runs = sum(trials(side, rates) for side in sides[:2]) + 2 * seeds
    takes = "a few seconds" if run is None else roughly(run.whole_s)
    what = f"{roughly(budget_s)} is too short, because a run takes {takes}, and an answer needs at least {runs} runs"
    fix = (
        f"Allow at least {answer_body.budget_text(_rounded_up(rest_s + pilot))}, or ask about an experiment that "
        "trains for less time."
    )
    raise ConfigError("budget", what, fix)


def longer_budget(budget_s: float, spent_s: float, needed_s: float | None = None) -> float:
    """The budget with which a question goes on that has spent `spent_s`: with time for `needed_s` more, else half as
    much again; whole minutes."""
    more_s = max(60.0, budget_s / 2) if needed_s is None else 60.0 + needed_s / SPARE**2
    return max(budget_s, 60.0 * math.ceil((spent_s + more_s) / 60))


def _rounded_up(seconds: float) -> float:
    step = 10 if seconds < 120 else 60
    return step * math.ceil(seconds / step)


def _within(
    sides: Sequence[Side], machine: Machine, sizes: Sizes, run: RunTime, left_s: float, one_by_one: bool
) -> Sizes | None:
    compared = sides[: sizes.sides]
    seconds = expected_s(compared, machine, sizes, run, one_by_one)
    if seconds > SPARE * left_s:
        return None
    most_s = LATER * expected_s(compared, machine, sizes, run, one_by_one, FURTHER)
    return replace(sizes, seconds=seconds, most_s=min(most_s, left_s))


def expected_s(
    sides: Sequence[Side], machine: Machine, sizes: Sizes, run: RunTime, one_by_one: bool, further: int = 0
) -> float:
    """About how long these sides take, if each search goes on with `further` points. Each run takes as long as one in a
    single process: more workers each compute fewer batches, but wait for each other."""
    each = run.of(made(sides[0].experiment, sizes.share))
    counts = [trials(side, sizes.rates) + further if side.tuned else 0 for side in sides]
    return searching_s(sides, machine, counts, each) + judging_s(sides, machine, sizes.seeds, each, one_by_one)


def searching_s(sides: Sequence[Side], machine: Machine, counts: Sequence[int], each_s: float) -> float:
    """About how long so many runs of the search of each side take."""
    rounds = sum(_rounds(count, side, machine) for side, count in zip(sides, counts, strict=True))
    return DRIVER_S + each_s * rounds if rounds else 0.0


def judging_s(sides: Sequence[Side], machine: Machine, seeds: int, each_s: float, one_by_one: bool) -> float:
    """About how long the runs with fresh seeds take."""
    return each_s * (len(sides) * seeds if one_by_one else sum(_rounds(seeds, side, machine) for side in sides))


def _rounds(runs: int, side: Side, machine: Machine) -> float:
    """Runs one after the other, where as many as there is room for run side by side."""
    together = max(1, machine.slots(side.experiment) // max(1, side.experiment.strategy.processes))
    return math.ceil(runs / together) * (PARALLEL_COST if together > 1 else 1.0)


def trials(side: Side, rates: int) -> int:
    """Points that are tried for a side."""
    if not side.tuned:
        return 0
    return rates * (len(BATCHES) if "batch_size" in side.tuned else 1)


def factors(rates: int) -> list[float]:
    """Multiples of the experiment's own learning rate that are tried, from its own outwards to an eighth (a quarter)
    and eight (four): whoever stops a search has then tried the same for each side."""
    step = {3: 4.0, 5: 2.5}.get(rates, 2.0)
    return [step**power for power in sorted(range(-(rates // 2), rates // 2 + 1), key=abs)]


def points(side: Side, rates: int) -> list[dict[str, float]]:
    """The points of the search for a side: rates around its own, for each batch size if that is tuned too. A larger
    batch begins at a larger rate, by the square root (Krizhevsky 2014)."""
    own = side.experiment.rate.requested or 0.0
    if "batch_size" not in side.tuned:
        return [{"learning_rate": rounded(own * factor)} for factor in factors(rates)]
    size = side.experiment.batch.per_worker or 1
    batches = {max(1, round(size * times)): times for times in BATCHES}
    return [
        {"batch_size": batch, "learning_rate": rounded(own * factor * math.sqrt(times))}
        for factor in factors(rates)
        for batch, times in batches.items()
    ]


def batches(side: Side) -> list[int]:
    """The batch sizes that a search may go to."""
    size = side.experiment.batch.per_worker or 1
    return sorted({max(1, round(size * 2.0**power)) for power in range(-4, 8)})


def beyond(tried: Sequence[Mapping[str, Any]], best: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Points beyond the best one where that is at an edge of what was tried: two rates beyond the smallest or largest
    one of its batch size, else two batch sizes beyond, with rates by the square root, else the rates around the only
    one of its batch size; else none."""
    rate, size = best.get("learning_rate"), best.get("batch_size")
    rates, batches = _tried_rates(tried, size), _tried_batches(tried)
    if rate is not None and len(rates) > 1 and rate in (rates[0], rates[-1]):
        step = rates[0] / rates[1] if rate == rates[0] else rates[-1] / rates[-2]
        return [{**best, "learning_rate": rounded(rate * step**power)} for power in (1, 2)]
    if rate is None or len(batches) < 2:
        return []
    if size in (batches[0], batches[-1]):
        times = [0.5, 0.25] if size == batches[0] else [2, 4]
        further = {max(1, round(size * factor)): rounded(rate * math.sqrt(factor)) for factor in times}
        points = [{"batch_size": each, "learning_rate": rate} for each, rate in further.items() if each not in batches]
        if points:
            return points
    others = max((_tried_rates(tried, other) for other in batches), key=len)
    if len(rates) > 1 or len(others) < 2:
        return []
    step = others[1] / others[0]
    return [{**best, "learning_rate": rounded(rate * factor)} for factor in (1 / step, step)]


def edges(tried: Sequence[Mapping[str, Any]], best: Mapping[str, Any]) -> list[str]:
    """In words, how the best point is at an edge of what was tried: there may be a better one beyond."""
    rate, size = best.get("learning_rate"), best.get("batch_size")
    sentences = []
    for name, value, values in (
        ("batch size", size, _tried_batches(tried)), ("learning rate", rate, _tried_rates(tried, size)),
    ):  # fmt: skip
        if value is not None and len(values) > 1 and value in (values[0], values[-1]):
            sentences.append(f"{name} {value:g} is the {'smallest' if value == values[0] else 'largest'} value tried")
    return sentences


def _tried_rates(tried: Sequence[Mapping[str, Any]], size: int | None) -> list[float]:
    """Those of a batch size, in order."""
    return sorted({one["learning_rate"] for one in tried if one.get("batch_size") == size and "learning_rate" in one})


def _tried_batches(tried: Sequence[Mapping[str, Any]]) -> list[int]:
    return sorted({one["batch_size"] for one in tried if "batch_size" in one})


def below(tried: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Points at two smaller rates than all that were tried, for a side that always diverged."""
    if not all("learning_rate" in point for point in tried):
        return []
    ordered = sorted(tried, key=lambda point: point["learning_rate"])
    rates = sorted({point["learning_rate"] for point in tried})
    step = rates[1] / rates[0] if len(rates) > 1 else factors(FULL[0])[-1]
    return [{**ordered[0], "learning_rate": rounded(rates[0] / step**power)} for power in (1, 2) if ordered]


def rounded(rate: float) -> float:
    """Three digits."""
    return float(f"{rate:.3g}")


def shortened(experiment: Experiment, share: float) -> Experiment:
    """The experiment with that share of its own training; whole epochs or steps, one at least."""
    if share >= 1:
        return experiment
    trainer: dict[str, Any] = dict(experiment.written.get("trainer") or {})
    for key in ("max_epochs", "max_steps"):
        value = experiment.trainer.get(key)
        if isinstance(value, int) and value > 0:
            trainer[key] = max(1, int(share * value))
    return experiment.with_config({**experiment.written, "trainer": trainer})


def made(experiment: Experiment, share: float) -> float:
    """The share that a shortened training has, whose epochs and steps are whole."""
    budgets = [experiment.trainer.get(key) for key in ("max_epochs", "max_steps")]
    return max([max(1, int(share * one)) / one for one in budgets if isinstance(one, int) and one > 0], default=1.0)


def validated(experiment: Experiment) -> float | None:
    """How often in an epoch to validate, as a share of it, so that it is seen when a target is reached; None where the
    experiment validates often enough, says when to validate, or counts validations to stop early."""
    trainer, epochs = experiment.trainer, experiment.trainer.get("max_epochs")
    written = {"val_check_interval", "check_val_every_n_epoch"} & (experiment.written.get("trainer") or {}).keys()
    counted = any("EarlyStopping" in str(callback) for callback in trainer.get("callbacks") or ())
    if written or counted or not isinstance(epochs, int) or not 0 < epochs < VALIDATIONS:
        return None
    return 0.5 ** math.ceil(math.log2(VALIDATIONS / epochs))


def same_samples(side: Experiment, base: Experiment) -> Experiment:
    """The side with as many samples as the base, where the base counts its steps: a step of it may have more."""
    steps, ours, theirs = base.trainer.get("max_steps"), base.batch.effective, side.batch.effective
    if not isinstance(steps, int) or steps <= 0 or not ours or not theirs or ours == theirs:
        return side
    trainer = {**(side.written.get("trainer") or {}), "max_steps": max(1, round(steps * ours / theirs))}
    return side.with_config({**side.written, "trainer": trainer})


def words(sizes: Sizes, sides: Sequence[Side]) -> str:
    """`one process; DDP × 2. Scalebook tries 7 learning rates for each side, then runs 5 fresh seeds of each side. This
    takes about 9 to 16 min`."""
    searched = [side for side in sides[: sizes.sides] if side.tuned]
    both = any("batch_size" in side.tuned for side in searched)
    tries = f"{trials(searched[0], sizes.rates)} {'points' if both else 'learning rates'}" if searched else ""
    tried = f"tries {tries}{' for each side' if len(searched) > 1 else ''}, then runs " if searched else "runs "
    takes = f"This takes about {_between(SOONER * sizes.seconds, sizes.most_s)}"
    done = f"Scalebook {tried}{sizes.seeds} fresh seeds of each side. {takes}"
    return f"{side_words(sides[: sizes.sides])}. {done}{retuned(sides[: sizes.sides])}"


def _between(low_s: float, high_s: float) -> str:
    """`9 to 16 min`, `50 s to 2 min`; `3 min` where both are the same."""
    low, high = roughly(low_s), roughly(high_s)
    unit = high.rpartition(" ")[2]
    return high if low == high else f"{low.removesuffix(f' {unit}')} to {high}"


def side_words(sides: Sequence[Side]) -> str:
    """`one process; DDP × 2`."""
    return "; ".join(side.words for side in sides)


def retuned(sides: Sequence[Side]) -> str:
    """That sides are not compared at their own learning rates, and which do; "" where none is tuned, or the question
    asks for rates."""
    tuned = [side for side in sides if side.tuned == ("learning_rate",)]
    if not tuned:
        return ""
    rates = [f"{side.experiment.rate.requested:g}" for side in tuned]
    pairs = [f"{side.words} {rate}" for side, rate in zip(tuned, rates, strict=True)]
    own = rates[0] if len({*rates}) == 1 else ", ".join(pairs)
    untuned = ", ".join(side.words for side in sides if not side.tuned)
    but = f" {untuned} keeps the learning rate of its model, because its config has no key for one." if untuned else ""
    text = f"Each side is compared at the best learning rate found, which can differ from the one in the config ({own})"
    return f". {text}.{but}".removesuffix(".")


def left_out(sizes: Sizes, sides: Sequence[Side]) -> list[str]:
    """What the budget leaves out, in sentences."""
    sentences = []
    if sizes.share < 1:
        sentences.append(f"Each run trains for {sizes.share:.0%} of the experiment's training length.")
    if (sizes.rates, sizes.seeds) != FULL:
        full = f"{FULL[0]} learning rates and {FULL[1]} seeds"
        sentences.append(
            f"{sizes.rates} learning rates and {sizes.seeds} seeds are tried. A longer budget allows {full}."
        )
    if missing := [side.words for side in sides[sizes.sides :]]:
        sentences.append(f"Not compared: {', '.join(missing)}.")
    return sentences
