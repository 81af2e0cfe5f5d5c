"""What changed from one state of a notebook to the next, cell by cell, in words."""

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from scalebook.training.base import ConfigError, one_line
from scalebook.training.notebook import history
from scalebook.training.notebook.cells import (
    AnswerCell,
    BrokenCell,
    Cell,
    ClaimCell,
    ComparisonCell,
    ExperimentCell,
    Note,
    Notebook,
    SearchCell,
)
from scalebook.training.notebook.history import PastState
from scalebook.training.notebook.parse import parse

LONGEST_NAME = 40


def changes(before: str, after: str) -> list[str]:
    """`experiment tiny: optimizer changed`, `note "Why?" added`; `the text changed` if one of them is no notebook."""
    try:
        old, new = parse(before), parse(after)
    except ConfigError:
        return ["the text changed"] if before != after else []
    sentences = [*_named(old, new), *_notes(old, new)]
    if old.front != new.front:
        sentences.insert(
            0,
            f"title changed to {one_line(new.title, LONGEST_NAME)}"
            if old.title != new.title
            else "front matter changed",
        )
    if not sentences and before != after:
        same = Counter(_text(cell) for cell in old.cells) == Counter(_text(cell) for cell in new.cells)
        moved = same and [_text(cell) for cell in old.cells] != [_text(cell) for cell in new.cells]
        return ["cells moved" if moved else "blank lines changed"]
    return sentences


def renamed(old: Notebook, new: Notebook) -> dict[str, str]:
    """The new names of experiments by their former ones: those with the same text, or else in the same place."""
    before, after = ({cell.name: cell for cell in nb.experiments()} for nb in (old, new))
    gone, names = [name for name in before if name not in after], dict[str, str]()
    for name, cell in after.items():
        if name in before or not gone:
            continue
        there = old.cells[place] if (place := new.cells.index(cell)) < len(old.cells) else None
        in_place = getattr(there, "name", "") if len(old.cells) == len(new.cells) else ""
        was = next((one for one in gone if _body(before[one]) == _body(cell)), in_place)
        if was in gone:
            gone.remove(was)
            names[was] = name
    return names


def name_now(path: Path, now: Notebook, name: str) -> str:
    """What the experiment `name` of the newest kept state that has it is called `now`; "" if it was deleted, or the
    history does not reach so far."""
    newer = [now]
    for state in history.past_states(path):
        past = _read(state)
        if past is None:
            continue
        if past.experiment(name) is None:
            newer.append(past)
            continue
        for following in reversed(newer):
            name, past = renamed(past, following).get(name, name), following
        return name if now.experiment(name) is not None else ""
    return ""


@lru_cache(maxsize=history.MOST_STATES)
def _read(state: PastState) -> Notebook | None:
    """None for one that is no notebook, or was trimmed meanwhile: it tells nothing of its names."""
    try:
        return parse(state.content().decode("utf-8", "replace"))
    except (ConfigError, OSError):
        return None


def _named(old: Notebook, new: Notebook) -> Iterator[str]:
    """Of the cells that have a name."""
    before, after = _by_name(old), _by_name(new)
    removed = {name: cell for name, cell in before.items() if name not in after}
    for name, cell in after.items():
        if name in before:
            if _text(before[name]) != _text(cell):
                yield f"{_kind(cell)} {name}: {_parts(before[name], cell)} changed"
            continue
        was = next((old_name for old_name, old_cell in removed.items() if _body(old_cell) == _body(cell)), None)
        if was is None:
            yield f"{_kind(cell)} {name} added"
        else:
            del removed[was]
            yield f"{_kind(cell)} {was} renamed to {name}"
    yield from (f"{_kind(cell)} {name} deleted" for name, cell in removed.items())


def _by_name(notebook: Notebook) -> dict[str, Cell]:
    return {one_line(cell.name, LONGEST_NAME): cell for cell in notebook.cells if not isinstance(cell, Note)}


def _kind(cell: Cell) -> str:
    kinds = {
        ExperimentCell: "experiment", ComparisonCell: "comparison", SearchCell: "search", ClaimCell: "claim",
        AnswerCell: "answer",
    }  # fmt: skip
    return cell.kind if isinstance(cell, BrokenCell) else kinds[type(cell)]


def _body(cell: Cell) -> str:
    return _text(cell).partition("\n")[2]


def _parts(before: Cell, after: Cell) -> str:
    """The keys whose values differ; `text` where none does, or one of the two cannot be read."""
    if type(before) is not type(after) or isinstance(after, BrokenCell):
        return "text"
    old, new = _values(before), _values(after)
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return ", ".join(keys) or "comments"


def _values(cell: Cell) -> dict[str, Any]:
    values = {key: value for key, value in vars(cell).items() if key not in ("source", "name")}
    config, body = values.pop("config", {}), values.pop("body", {})
    return {**values, **config, **body}


def _notes(old: Notebook, new: Notebook) -> Iterator[str]:
    before, after = _note_texts(old), _note_texts(new)
    removed = [text for text in before if text not in after]
    added = [text for text in after if text not in before]
    for text in added:
        like = next(
            (other for other in removed if _name(other) == _name(text)),
            removed[0] if len(removed) == len(added) else None,
        )
        if like is None:
            yield f"note {_name(text)} added"
        else:
            removed.remove(like)
            yield f"note {_name(text)} changed"
    yield from (f"note {_name(text)} deleted" for text in removed)


def _note_texts(notebook: Notebook) -> list[str]:
    return [_text(cell) for cell in notebook.cells if isinstance(cell, Note)]


def _name(text: str) -> str:
    """A note by its first words."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return f"“{one_line(first.lstrip('# ').strip(), LONGEST_NAME)}”"


def _text(cell: Cell) -> str:
    """Without the blank lines behind it, which come and go with its neighbours."""
    return cell.source.rstrip()
