"""What is said of the splits of a model: first from where on one pays, then the best, then what cannot be trained."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from scalebook.training.planner.answers import SplitAnswer, SplitPoint, StruckSplit
from scalebook.training.planner.reliability import read_comparisons
from scalebook.training.pricing import format_quantity, links, workers_words

BEST: Final = 3
LARGE: Final = "more than the memory of a worker"
TELLING: Final = 0.01
"""Share of a worker's time from which a loss is named."""
ASSUMED: Final = (
    "The estimates for splits assume that a worker computes part of a layer at the same speed as the whole layer."
)


def split_lines(answer: SplitAnswer) -> list[str]:
    """The answer as a person reads it in a terminal: `first_words`, the best three, then what cannot be trained, by
    cause."""
    lines = [
        split_title(answer),
        *first_words(answer),
        *(
            f"{place} of {len(answer.points)}: {_compared(point)}"
            for place, point in zip(("Best", "2nd", "3rd"), answer.points[:BEST], strict=False)
        ),
    ]
    causes = defaultdict(list)
    for each in answer.struck:
        causes[each.cause].append(each)
    lines += [_struck(cause, splits, answer.limit) for cause, splits in causes.items()]
    return [*lines, *last_words(answer)]


def split_title(answer: SplitAnswer) -> str:
    where = "" if answer.network == links.OWN else f", {links.WORDS[answer.network]}"
    return f"The model split over {workers_words(answer.workers)}{where}"


def first_words(answer: SplitAnswer) -> list[str]:
    """From where on a split pays; whether one worker holds the model, and is faster."""
    lines = list(answer.rules)
    if answer.limit and answer.one_memory > answer.limit:
        lines.append(
            f"The model does not fit on one worker: it needs {format_quantity(answer.one_memory, 'B')}, but a "
            f"worker has {format_quantity(answer.limit, 'B')}."
        )
    elif not answer.points or answer.points[0].faster <= 1:
        lines.append(f"One worker is faster: {three(answer.one_per_s)} samples/s.")
    if not answer.points:
        lines.append("No split can be trained.")
    return lines


def last_words(answer: SplitAnswer) -> list[str]:
    """What is not known, and what the prices were compared with."""
    unknown = "The memory of a worker is not known (set profile.memory), so splits that need too much are not left out."
    return [*([] if answer.limit else [unknown]), ASSUMED, compared_words()]


def compared_words() -> str:
    """How far such estimates were off, which no run on a machine of ours has shown."""
    reliability = read_comparisons().of("split", "network")
    low, high = reliability.updates_per_s.likely(1.0)
    return (
        f"Expect the real samples/s to be {low:.2f} to {high:.2f} times the estimate: 9 of 10 published numbers are "
        f"({reliability.cells} were compared, none with a run on this machine: python -m tests.published splits)."
    )


def losses(point: SplitPoint) -> list[tuple[float, str]]:
    """What a worker does with its time besides computing: shares worth telling, the largest first."""
    waits = f"waits for other stages (the bubble is {point.bubble:.0%} of the pipeline)"
    shares = [
        (point.sums, "sums the outputs of divided layers"),
        (point.idle, waits),
        (point.exchange, "waits for parameters and gradients"),
    ]
    return sorted(((share, words) for share, words in shares if share >= TELLING), key=lambda pair: -pair[0])


def three(value: float) -> str:
    """A number with three digits."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


def _struck(cause: str, splits: Sequence[StruckSplit], limit: float) -> str:
    """How many, and some of them: where memory is the cause, that which needs least of it."""
    count = f"{len(splits)} split{'s' * (len(splits) > 1)}"
    if cause != LARGE:
        some = ", ".join(each.words for each in splits[:BEST]) + (", ..." if len(splits) > BEST else "")
        return f"Left out: {count} ({some}), because {cause}."
    least = min(splits, key=lambda each: each.memory)
    again = f", or {format_quantity(least.recomputed, 'B')} if activations are recomputed"
    return (
        f"Left out: {count} that would need {cause} ({format_quantity(limit, 'B')}). The split that needs the least "
        f"memory is {least.words}, which needs "
        f"{format_quantity(least.memory, 'B')}{again if least.recomputed < least.memory else ''}."
    )


def _compared(point: SplitPoint) -> str:
    lost = [f", and for {share:.0%} of the time it {words}" for share, words in losses(point)]
    return (
        f"{point.words}: {three(point.samples_per_s)} samples/s, {point.faster:.2f} times one worker, with "
        f"{point.samples:,} samples per update. A worker computes for {point.compute:.0%} of the time{''.join(lost)}. "
        f"A worker holds {format_quantity(point.memory, 'B')}, and sends {format_quantity(point.sent, 'B')} per update."
    )
