"""What a claim says, as one sentence: for its card, its form and the terminal."""

import re
from collections.abc import Collection, Sequence
from typing import Final

from scalebook.training.notebook.cells import ClaimCell
from scalebook.training.tracking import names

MISSING: Final = "…"
"""Stands for what a claim does not say yet."""
VERBS: Final = {
    "updates_per_second": ("makes", "make", "updates per second"),
    "samples_per_second": ("trains on", "train on", "samples per second"),
}
SEVERAL: Final = re.compile(r"(?!1 )\d+ ")
"""The beginning of a subject in the plural: `8 workers`."""


def claim_sentence(cell: ClaimCell, labels: Sequence[str], simulated: Collection[bool] = ()) -> str:
    """The sentence; `labels` name `cell.sides`, in their order. `simulated`: whether the runs of each side have virtual
    workers, whose seconds are called virtual."""
    if not cell.ratios:
        first, *sides = labels if cell.against is not None else ("", *labels)
        return _plain(cell, _bounds(cell), sides, first, simulated)
    pairs = [(labels[2 * i + 1], labels[2 * i]) for i in range(len(cell.plain))]
    if cell.against is None:
        both = zip(cell.plain, pairs, strict=True)
        return " ".join(_plain(plain, _bounds(cell), [of], base, simulated) for plain, (of, base) in both)
    (of, base), *others = pairs
    whole = f"the ratio of {of} to {base} in {_amount(cell.plain[0], simulated)}"
    return " ".join(
        f"The ratio of {of} to {base} in {_amount(plain, simulated)} is {_bounds(cell)} times {whole}."
        for plain, (of, base) in zip(cell.plain[1:], others, strict=True)
    )


def _plain(cell: ClaimCell, bounds: str, of: Sequence[str], base: str, simulated: Collection[bool]) -> str:
    subject = of[0] if len(of) == 1 else f"each of {', '.join(of[:-1])} and {of[-1]}" if of else MISSING
    if cell.figure == "best":
        of_base = f" times that of {base}" if base else ""
        return f"The {_amount(cell, simulated)} of {subject} is {bounds}{of_base}."
    subject = subject.replace("each", "Each", 1) if len(of) > 1 else subject
    plural = SEVERAL.match(subject) is not None
    if cell.figure in VERBS:
        one, many, unit = VERBS[cell.figure]
        than = f" times as many {unit} as {base}" if base else f" {unit}"
        return f"{subject} {many if plural else one} {bounds}{than}."
    than = f" times the {_unit(cell, simulated)} of {base}" if base else f" {_unit(cell, simulated)}"
    return f"{subject} {'need' if plural else 'needs'} {bounds}{than} to {_goal(cell)}."


def _bounds(cell: ClaimCell) -> str:
    both = (("at least", cell.at_least), ("at most", cell.at_most))
    return " and ".join(f"{word} {bound:g}" for word, bound in both if bound is not None) or f"at most {MISSING}"


def _amount(cell: ClaimCell, simulated: Collection[bool]) -> str:
    """`best val/loss`, `updates per second`, or `samples to bring val/loss to 0.25`."""
    if cell.figure == "best":
        return f"best {cell.metric or MISSING}"
    return VERBS[cell.figure][2] if cell.figure in VERBS else f"{_unit(cell, simulated)} to {_goal(cell)}"


def _unit(cell: ClaimCell, simulated: Collection[bool]) -> str:
    return f"virtual {cell.figure}" if cell.figure == names.SECONDS and simulated and all(simulated) else cell.figure


def _goal(cell: ClaimCell) -> str:
    return f"bring {cell.metric or MISSING} to {MISSING if cell.target is None else f'{cell.target:g}'}"
