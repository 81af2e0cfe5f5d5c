"""An answer in words and tables that a person can act on."""

from collections.abc import Mapping, Sequence
from typing import Final

from scalebook.training.engine.rules import EXCHANGES
from scalebook.training.planner.answers import Answer, Cause, Change, Curve, Point, Range, Reliability, Resource
from scalebook.training.planner.question import COLLECTIVES
from scalebook.training.planner.reliability import FEWEST
from scalebook.training.pricing import Profile, format_quantity, links, workers_words

CAUSES: Final[Mapping[Resource, str]] = {
    "server": "the servers' time",
    "server cores": "the cores of the server machines",
    "software": "the software for sending and receiving",
    "server link": "the servers' link",
    "worker link": "the workers' links",
    "stragglers": "waiting for slower workers",
    "cores": "the machine that the workers share (its cores or GPUs, caches and memory)",
}
MOST_CHANGES: Final = 4
HEADER: Final = (
    "workers   updates/s   samples/s   of ideal   compute   push, pull   wait   staleness   p95   servers busy   "
    "link busy   memory each"
)
PRICED: Final = "   per 1M samples"
BASED: Final = "        rates are"
MILLION: Final = 1e6


def system_words(profile: Profile) -> str:
    """The system of a plan, in a line."""
    cores = "" if profile.cores is None else f"; all workers share {_count(profile.cores, 'core')}"
    if profile.gpus:
        cores = f"; all workers share {_count(profile.gpus, 'GPU')}"
    if profile.slowdown:
        most = max(profile.slowdown)
        cores += f"; gradients take {profile.slowdown[most]:.2f} times as long if {most} workers compute at once"
    pull = "" if profile.pull_bytes == profile.push_bytes else f", a pull {format_quantity(profile.pull_bytes, 'B')}"
    return (
        f"{profile.title}: a gradient of {_count(profile.batch_size, 'sample')} takes "
        f"{format_quantity(profile.gradient_mean_s, 's')}, "
        f"a push sends {format_quantity(profile.push_bytes, 'B')}{pull}{cores}{_servers(profile)} ({profile.source})"
    )


def _servers(profile: Profile) -> str:
    """What of the servers' machines and of the software is said."""
    words = ""
    if profile.server_machines == "workers":
        words += "; the servers run on the workers' machines"
    if profile.server_cores is not None:
        words += f"; the servers have {_count(profile.server_cores, 'core')}"
    if (software := profile.software) is not None:
        copies = "" if software.bandwidth is None else f" and copy at {format_quantity(software.bandwidth, 'B/s')}"
        words += f"; sender and receiver each need {format_quantity(software.message_s, 's')} per message{copies}"
    return words


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number > 1)}"


def busy_words(profile: Profile) -> str:
    """A warning, where others used the machine that was measured; else ""."""
    if not profile.busy:
        return ""
    return (
        f"Measured while other processes used {profile.busy:.1f} cores of this machine, so all ranges are wider by a "
        f"factor of {profile.doubt:.2f} at both ends. Measure again when the machine is idle."
    )


def heading(curve: Curve) -> str:
    """`async, 2 shards, 10 Gbit/s Ethernet`."""
    served = curve.rule not in COLLECTIVES and curve.rule.partition(":")[0] not in EXCHANGES
    shards = [f"{curve.shards} shard{'s' if curve.shards > 1 else ''}"] if served else []
    beside = [curve.beside] if curve.beside else []
    return ", ".join(
        [curve.rule, *shards, *beside] + ([] if curve.network == links.OWN else [links.WORDS[curve.network]])
    )


def table(curve: Curve, price: float | None = None) -> list[str]:
    """A line for each number of workers, below `HEADER`. `price`, per worker and hour, adds a column, and so does a
    profile that was measured: whether rates are."""
    columns = [[HEADER, *(_row(curve, point) for point in curve.points)]]
    if curve.measured:
        columns.append([BASED, *(f"{curve.basis(point.workers):>{len(BASED)}}" for point in curve.points)])
    if price is not None:
        costs = (_three(million_price(point, price)) for point in curve.points)
        columns.append([PRICED, *(f"{cost:>{len(PRICED)}}" for cost in costs)])
    return ["".join(cells) for cells in zip(*columns, strict=True)]


def million_price(point: Point, price: float) -> float:
    """The cost of a million samples, in the unit of `price`, which is per worker and hour."""
    return point.workers * price * MILLION / point.samples_per_s / 3600


def _row(curve: Curve, point: Point) -> str:
    ideal = point.samples_per_s / (point.workers * curve.one_per_s)
    link = max(point.in_busy, point.out_busy)
    return (
        f"{point.workers:7d} {_three(point.updates_per_s):>11} {_three(point.samples_per_s):>11} {ideal:>10.0%} "
        f"{point.compute:>9.0%} {point.communicate:>12.0%} {point.idle:>6.0%} {point.staleness:>11.1f} "
        f"{point.staleness_p95:>5d} {point.server_busy:>14.0%} {link:>11.0%} "
        f"{format_quantity(point.memory, 'B') if point.memory else '':>13}"
    )


def sentences(curve: Curve, elastic: Sequence[int] = (), config_workers: int = 0) -> list[str]:
    """Sentences: the rates of the config's own workers, how far workers help, the limit, what would help, what was
    measured, and how far all of it may be off. `elastic`, `config_workers`: as in `Question`."""
    limit = [_needs_gpus(curve)] if curve.gpus else []
    if not curve.points:
        return limit or ["None of these numbers of workers is possible with this rule."]
    reach = [] if limit and len(curve.points) == 1 else [_reach(curve)]
    lines = [*_of_range(curve, elastic, config_workers), *reach, *limit]
    lines += _why(curve)
    if curve.changes:
        best = curve.changes[:MOST_CHANGES]
        moves = "; ".join(f"{change.words} ({_times(change)})" for change in best)
        lines.append(f"What would help at {workers_words(best[0].workers)}: {moves}.")
    if curve.basis(curve.points[-1].workers) == "extrapolated":
        lines.append(
            f"Measured: the times of up to {workers_words(curve.measured)}. Extrapolated: all rates for more workers."
        )
    return [*lines, *expectation(curve.reliability)]


def _needs_gpus(curve: Curve) -> str:
    return (
        f"Each worker needs its own GPU, and this machine has {_count(curve.gpus, 'GPU')}, so larger numbers of "
        "workers are not planned."
    )


def _of_range(curve: Curve, elastic: Sequence[int], config_workers: int) -> list[str]:
    """Of the config's own workers. Where machines may join and leave, what is planned for is all of them."""
    by_workers = {point.workers: point for point in curve.points}
    if not elastic or any(workers not in by_workers for workers in elastic):
        own = by_workers.get(config_workers)
        return [] if own is None else [f"As configured, {_rates(own)}."]
    least, most = (by_workers[workers] for workers in elastic)
    declared = f"The config has workers: {{min: {least.workers}, max: {most.workers}}}."
    return [f"{declared} At the maximum, {_rates(most)}. At the minimum, {_rates(least)}."]


def _rates(point: Point) -> str:
    rates = f"{_three(point.updates_per_s)} updates/s and {_three(point.samples_per_s)} samples/s"
    return f"{workers_words(point.workers)} {'make' if point.workers > 1 else 'makes'} {rates}"


def expectation(reliability: Reliability) -> list[str]:
    """Between which values updates/s will be, and from which plans that is known; what makes this range wider."""
    low, high = reliability.updates_per_s.likely(1.0)
    lines = [
        f"Expect the real updates/s to be {low:.2f} to {high:.2f} times this prediction. {_known_from(reliability)}"
    ]
    if reliability.doubt > 1:
        lines.append(
            f"Both ends of this range are moved by a factor of {reliability.doubt:.2f}, because the machine was busy "
            "during the measurement."
        )
    if reliability.missing:
        *most, last = reliability.missing
        keys = f"{', '.join(most)} and {last}" if most else last
        lines.append(
            f"The profile does not contain {keys}, so the range for incomplete profiles is used. Add "
            f"{'them' if most else 'it'} for a better prediction."
        )
    return lines


def _known_from(reliability: Reliability) -> str:
    """From which plans a range is known."""
    count = reliability.borrowed or reliability.cells
    plans = (
        f"This holds for 9 of 10 plans of {reliability.lenders or reliability.kind} ({count} were compared with runs)."
    )
    if not reliability.borrowed:
        return plans
    return f"{plans} Plans of {reliability.kind} were compared on fewer than {FEWEST} systems."


def accuracy(answer: Answer) -> list[str]:
    """How far plans of the kinds in the answer were off, and which commands show it."""
    kinds = {curve.reliability.kind: curve.reliability for curve in answer.curves}
    return [*map(_accuracy, kinds.values()), TWO_PREDICTIONS] if kinds else []


def _accuracy(reliability: Reliability) -> str:
    stale = reliability.staleness
    also = "" if stale is None else f", and {_range(stale)} times the measured staleness"
    within = reliability.updates_per_s.wider(1 / reliability.doubt)
    return (
        f"{reliability.kind}: 9 of 10 predictions were {_range(within)} times the measured updates/s{also}. "
        f"{_known_from(reliability)} Commands: {'; '.join(reliability.sources)}."
    )


TWO_PREDICTIONS: Final = (
    "Each speed-up or factor compares two predictions, and its range allows for errors in both. The range does not "
    "allow for a profile that describes the hardware wrongly."
)


def _reach(curve: Curve) -> str:
    last, rates = curve.points[-1], curve.reliability.updates_per_s
    if last.workers == 1:
        return "The plan has only one worker. Plan more workers to see whether they help."
    if curve.knee is None:
        low, high = rates.likely(last.samples_per_s / curve.one_per_s)
        return (
            f"Each added worker helps, up to all {last.workers}: {last.workers} workers train {_three(low)} to "
            f"{_three(high)} times as fast as one."
        )
    knee = curve.knee
    low, high = rates.likely(knee.samples_per_s / curve.one_per_s)
    edge, least, greatest = (max(1, round(workers)) for workers in (knee.workers, knee.low, knee.high))
    if edge == 1:
        helps = "Adding workers makes training slower" if high < 1 else "Adding workers hardly helps"
        return f"{helps}: {knee.beyond} workers train {_three(low)} to {_three(high)} times as fast as one."
    most = max(curve.points, key=lambda point: point.samples_per_s)
    more = ""
    if most.samples_per_s > 1.1 * knee.samples_per_s:
        low_most, high_most = rates.likely(most.samples_per_s / curve.one_per_s)
        more = f" {most.workers} workers train {_three(low_most)} to {_three(high_most)} times as fast as one."
    if last.samples_per_s < 0.95 * most.samples_per_s:
        more += f" {last.workers} workers are slower than {most.workers}."
    return (
        f"Workers help up to about {edge} ({least} to {greatest}): {knee.beyond} workers train {_three(low)} to "
        f"{_three(high)} times as fast as one, and each worker beyond {edge} adds less than half of what the second "
        f"worker added.{more}"
    )


def _why(curve: Curve) -> list[str]:
    workers = curve.at or (curve.knee.beyond if curve.knee else curve.points[-1].workers)
    if not curve.causes:
        if curve.knee is None:
            return []
        return ["The limit is neither one resource nor any two of them, because the rule itself makes workers wait."]
    first, *others = curve.causes
    train = f"{workers_words(workers)} would train"
    within = f"{_two(first.low)} to {_two(first.high)}"
    text = (
        f"The limit is {_resources(first)}. Without this limit, {train} {_two(first.factor)} times as fast ({within})."
    )
    if others:
        further = "; ".join(f"{_resources(cause)} ({_times(cause)})" for cause in others)
        text += f" The next limits are: {further}."
    return [text]


def _resources(cause: Cause) -> str:
    return " and ".join(CAUSES[resource] for resource in cause.resources)


def _times(effect: Cause | Change) -> str:
    return f"{_two(effect.factor)} x, {_two(effect.low)} to {_two(effect.high)}"


def _range(within: Range) -> str:
    return f"{within.lowest:.2f} to {within.highest:.2f}"


def _two(value: float) -> str:
    """Two digits, and no power of ten."""
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.2g}"


def _three(value: float) -> str:
    """Three digits, thousands apart."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


BEST: Final = 3


def compare_strategies(answer: Answer) -> list[str]:
    """The best strategies for the number of workers that was asked for, each with its limit, the config's own among
    them; and a sentence if one process is faster than all. Empty if fewer than two can be compared."""
    by_curve = [(curve, point) for curve in answer.curves for point in curve.points if point.workers == answer.at]
    if len(by_curve) < 2 or answer.at < 2:
        return []
    ranked = sorted(by_curve, key=lambda pair: -pair[1].samples_per_s)
    chosen = [pair for place, pair in enumerate(ranked) if place < BEST or pair[0].own]
    lines = [
        f"{_place(ranked.index((curve, point)))} of {len(ranked)} with {workers_words(answer.at)}: "
        f"{_compared(curve, point, answer)}"
        for curve, point in chosen
    ]
    if ranked[0][1].samples_per_s <= answer.alone_per_s:
        lines.insert(0, f"One process is faster: {_three(answer.alone_per_s)} samples/s.")
    return lines


def _compared(curve: Curve, point: Point, answer: Answer) -> str:
    low, high = curve.reliability.updates_per_s.likely(point.samples_per_s / answer.alone_per_s)
    own = " (the config's)" if curve.own else ""
    limit = f" Bottleneck: {_resources(curve.causes[0])}." if curve.causes and curve.at == answer.at else ""
    basis = f" ({curve.basis(point.workers)})" if curve.measured else ""
    return (
        f"{heading(curve)}{own}, {_three(point.samples_per_s)} samples/s{basis}, {_three(low)} to {_three(high)} times "
        f"one process.{limit}"
    )


def curves(answer: Answer, *, every: bool) -> Sequence[Curve]:
    """Those that a short answer explains: the config's own; without a config, the fastest for the number of workers
    that was asked for. All with `every`."""
    if every or not answer.curves:
        return answer.curves
    by_rate = [
        (point.samples_per_s, curve) for curve in answer.curves for point in curve.points if point.workers == answer.at
    ]
    fastest = max(by_rate, key=lambda pair: pair[0])[1] if by_rate else answer.curves[0]
    return [curve for curve in answer.curves if curve.own] or [fastest]


def printed(answer: Answer, profile: Profile, explained: Sequence[Curve]) -> Sequence[str]:
    """The answer as lines: the system, the best strategies, and the sentences of those that are `explained`."""
    warning = busy_words(profile)
    lines = [
        *([warning] if warning else []),
        system_words(profile),
        *([""] if (best := compare_strategies(answer)) else []),
        *best,
    ]
    for curve in explained:
        lines += ["", heading(curve), *sentences(curve, answer.elastic, answer.config_workers)]
    return lines


def tables(answer: Answer, price: float | None = None) -> Sequence[str]:
    """What a short answer leaves out: a table of each strategy, and how accurate such plans were. `price`: per worker
    and hour, if a person has named it."""
    lines = [line for curve in answer.curves for line in (heading(curve), *table(curve, price), "")]
    return [*lines, *accuracy(answer)]


def _place(index: int) -> str:
    """The best has index 0."""
    return ("Best", "2nd", "3rd")[index] if index < 3 else f"{index + 1}th"
