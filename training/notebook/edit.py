"""Edits of a notebook: each takes one and returns another, with every cell but the one meant byte for byte the same.

An edit that would change how other cells are read (a note with a fence that is not closed, say) raises ConfigError.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from typing import Any

from scalebook.training.base import ConfigError
from scalebook.training.base.files import yaml, yaml_flow
from scalebook.training.notebook.answer_body import BUDGET_S, budget_text
from scalebook.training.notebook.bodies import SCALES, Told, load_mapping
from scalebook.training.notebook.cells import (
    AnswerCell,
    BrokenCell,
    Cell,
    ClaimCell,
    ComparisonCell,
    Kind,
    Note,
    Notebook,
    Ratio,
    SearchCell,
)
from scalebook.training.notebook.claim_body import OF
from scalebook.training.notebook.fences import NAME, NAME_REMEDY, fences
from scalebook.training.notebook.lines import line_end, split_lines
from scalebook.training.notebook.patch import inserted, patch, removed, replaced
from scalebook.training.tracking import Goal, directions


def replace_note(nb: Notebook, index: int, text: str) -> Notebook:
    """Note `index` with the new `text`. Text with fences of its own may become several cells; blank text removes it."""
    assert isinstance(nb.cells[index], Note), f"cell {index} is not a note"
    return replaced(nb, index, text)


def replace_source(nb: Notebook, index: int, text: str) -> Notebook:
    """Any cell with the new source `text`, fence lines included: how a broken cell is mended by hand."""
    return replaced(nb, index, text)


def insert_note(nb: Notebook, index: int, text: str) -> Notebook:
    """`text` as a note before cell `index`; beside another note the two become one."""
    return inserted(nb, index, text)


def remove(nb: Notebook, index: int) -> Notebook:
    """Without cell `index`."""
    return removed(nb, index)


def move(nb: Notebook, index: int, to: int) -> Notebook:
    """Cell `index` at position `to` among the others."""
    if index == to:
        return nb
    source = nb.cells[index].source
    rest = nb.cells[:index] + nb.cells[index + 1 :]
    place = sum(not isinstance(cell, Note) for cell in rest[:to])
    without = removed(nb, index)
    if len(without.cells) == len(rest):
        return inserted(without, to, source)
    return inserted(without, _behind(without, place), source)  # two notes became one


def put_experiment(
    nb: Notebook, name: str, config: Mapping[str, Any], repeats: int = 1, position: int | None = None, remark: str = ""
) -> Notebook:
    """The experiment `name` with this config: changed in place if it is there, else new at `position` (or last).

    In a changed cell all that did not change keeps its text, comments included. A new one begins with `remark`.
    """
    values = {"config": dict(config)} if repeats == 1 else {"repeats": repeats, "config": dict(config)}
    index = _index(nb, "experiment", name)
    if index is None:
        comment = f"# {' '.join(remark.split())}\n" if remark.strip() else ""
        return _new_cell(nb, "experiment", name, comment + _experiment_body(values), position, values)
    written = _told(nb.cells[index])
    if repeats == 1 and "repeats" in written:
        values = {"repeats": 1, **values}
    return _changed(nb, index, written, values, _experiment_body(values))


def put_comparison(nb: Notebook, cell: ComparisonCell, position: int | None = None) -> Notebook:
    """The comparison `cell.name` as `cell` says (its `source` is ignored), like `put_experiment`."""
    values = {key: value for key, value in asdict(cell).items() if key not in ("source", "name", "goal")}
    values["metric"] = directions.metric_text(cell.metric, cell.goal)
    if not cell.metric:
        del values["metric"]
    if cell.target is None:
        del values["target"]
    if cell.scale == SCALES[0]:
        del values["scale"]
    index = _index(nb, "comparison", cell.name)
    body = "".join(f"{key}: {yaml_flow.flow(value)}\n" for key, value in values.items())
    if index is None:
        return _new_cell(nb, "comparison", cell.name, body, position, values)
    written = _told(nb.cells[index])
    before = nb.cells[index]
    if isinstance(before, ComparisonCell):  # what did not change keeps the way it is written: `target: 2`, `x: samples`
        old = {**asdict(before), "metric": directions.metric_text(before.metric, before.goal)}
        values = {key: _as_told(written, key, value, old[key]) for key, value in values.items()}
        values = {key: value for key, value in values.items() if key in written or value != old[key]}
    return _changed(nb, index, written, values, body)


def say_better(nb: Notebook, cell: ComparisonCell | ClaimCell, metric: str, goal: Goal) -> Notebook:
    """The cell with `{metric: goal}` for this metric: its better direction, as a person says. `cell` names the metrics
    that it is judged by, also where nobody has written them; a claim of ratios says it in each of them."""
    index = _index(nb, _kind(cell), cell.name)
    assert index is not None, f"no cell {cell.name}"
    written = _told(nb.cells[index])
    if isinstance(cell, ClaimCell) and cell.ratios:
        values = _ratios_say(written, cell, metric, goal)
    else:
        values = {**written, "metric": directions.metric_text(metric, goal)}
    return _changed(
        nb, index, written, values, "".join(f"{key}: {yaml_flow.flow(value)}\n" for key, value in values.items())
    )


def _ratios_say(written: Mapping[str, Any], cell: ClaimCell, metric: str, goal: Goal) -> dict[str, Any]:
    """The YAML of a claim of ratios, with what is better of the metric at each place that names it; in a ratio that is
    judged by it where neither it nor its claim names one."""
    metric_named = directions.metric_text(metric, goal)

    def with_goal(says: Mapping[str, Any], missing: bool) -> dict[str, Any]:
        named = directions.read_metric_name(says.get("metric"))
        return {**says, "metric": metric_named} if missing or (named is not None and named[0] == metric) else dict(says)

    def ratio(side: Mapping[str, Any], judged: Ratio) -> dict[str, Any]:
        return with_goal(side, "metric" not in side and "metric" not in written and judged.metric == metric)

    values, ratios = with_goal(written, missing=False), list(cell.ratios)
    if cell.against is not None:
        values["against"] = ratio(written["against"], ratios.pop(0))
    runs = written["runs"]
    if isinstance(runs, list):
        values["runs"] = [ratio(side, judged) for side, judged in zip(runs, ratios, strict=True)]
    else:
        values["runs"] = ratio(runs, ratios[0])
    return values


def put_search(nb: Notebook, name: str, body: Mapping[str, Any], position: int | None = None) -> Notebook:
    """The search `name` with this body, like `put_experiment`; one key a line, a config as a block."""
    index = _index(nb, "search", name)
    values = dict(body)
    text = "".join(_search_line(key, value) for key, value in values.items())
    if index is None:
        return _new_cell(nb, "search", name, text, position, values)
    return _changed(nb, index, _told(nb.cells[index]), values, text)


def values_of(cell: Cell) -> dict[str, Any]:
    """The YAML of a cell as it is written, to be changed and put back; empty for one that is broken."""
    return dict(_told(cell))


def put_claim(nb: Notebook, name: str, values: Mapping[str, Any], position: int | None = None) -> Notebook:
    """The claim `name` with this YAML, like `put_experiment`."""
    index = _index(nb, "claim", name)
    body = "".join(f"{key}: {yaml_flow.flow(value)}\n" for key, value in values.items())
    if index is None:
        return _new_cell(nb, "claim", name, body, position, values)
    return _changed(nb, index, _told(nb.cells[index]), values, body)


def put_answer(nb: Notebook, cell: AnswerCell, position: int | None = None) -> Notebook:
    """The answer `cell.name` as `cell` says (its `source` is ignored), like `put_experiment`."""
    values: dict[str, Any] = {
        "question": cell.question,
        "experiment": cell.experiment,
        "against": cell.against,
        "metric": directions.metric_text(cell.metric, cell.goal) if cell.metric else None,
        "target": cell.target,
        "budget": budget_text(cell.budget_s) if cell.budget_s != BUDGET_S else None,
        "pilot": cell.pilot,
        "searches": dict(cell.searches) or None,
        "comparison": cell.comparison,
        "claims": cell.claims or None,
    }
    values = {key: value for key, value in values.items() if value is not None}
    index = _index(nb, "answer", cell.name)
    body = "".join(f"{key}: {yaml_flow.flow(value)}\n" for key, value in values.items())
    if index is None:
        return _new_cell(nb, "answer", cell.name, body, position, values)
    written = _told(nb.cells[index])
    for key in ("budget", "target", "metric"):  # what did not change keeps the way it is written
        before = nb.cells[index]
        if key in written and isinstance(before, AnswerCell) and _same_key(before, cell, key):
            values[key] = written[key]
    return _changed(nb, index, written, values, body)


def _same_key(before: AnswerCell, after: AnswerCell, key: str) -> bool:
    fields = {"budget": ("budget_s",), "target": ("target",), "metric": ("metric", "goal")}[key]
    return all(getattr(before, name) == getattr(after, name) for name in fields)


def _answers_renamed(nb: Notebook, name: str, to: str) -> Notebook:
    """With `to` for the cell `name` in every answer."""

    def now(one: str | None) -> str | None:
        return to if one == name else one

    for cell in nb.answers():
        if name not in {*cell.cells, *cell.searches}:
            continue
        searches = {now(key) or key: now(value) or value for key, value in cell.searches.items()}
        claims = [now(one) or one for one in cell.claims]
        nb = put_answer(
            nb,
            replace(
                cell, experiment=now(cell.experiment) or "", against=now(cell.against), pilot=now(cell.pilot),
                searches=searches, comparison=now(cell.comparison), claims=claims,
            ),
        )  # fmt: skip
    return nb


def rename(nb: Notebook, name: str, to: str) -> Notebook:
    """The experiment `name` under another name, in its cell and in every cell that names it."""
    nb = _answers_renamed(_renamed(nb, "experiment", name, to), name, to)
    for cell in nb.comparisons():
        if name in cell.runs:
            runs = [to if run == name else run for run in cell.runs]
            nb = put_comparison(nb, replace(cell, runs=runs))
    for search in nb.searches():
        if search.experiment == name:
            nb = put_search(nb, search.name, {**search.body, "experiment": to})
    for claim in nb.claims():
        if name in claim.sides:
            nb = _renamed_in_claim(nb, claim, name, to)
    return nb


def _renamed_in_claim(nb: Notebook, claim: ClaimCell, name: str, to: str) -> Notebook:
    index = _index(nb, "claim", claim.name)
    assert index is not None, f"no claim {claim.name}"
    written = _told(nb.cells[index])
    values = cell_renamed(written, name, to)
    return _changed(
        nb, index, written, values, "".join(f"{key}: {yaml_flow.flow(value)}\n" for key, value in values.items())
    )


def cell_renamed(says: Mapping[str, Any], name: str, to: str) -> dict[str, Any]:
    """The YAML of a claim with `to` for the experiment or search `name`."""
    values = {
        key: _side_renamed(value, name, to) if key in ("runs", "against") else value for key, value in says.items()
    }
    return {key: to if key == "search" and value == name else value for key, value in values.items()}


def _side_renamed(side: Any, name: str, to: str) -> Any:
    """Sides of a claim with `to` for the experiment `name`; values of a search's dimensions stay."""
    if isinstance(side, list):
        return [_side_renamed(item, name, to) for item in side]
    if isinstance(side, Mapping) and OF in side:
        return {
            key: _side_renamed(value, name, to) if key in (OF, "against", "search") else value
            for key, value in side.items()
        }
    return to if side == name else side


def rename_comparison(nb: Notebook, name: str, to: str) -> Notebook:
    """The comparison `name` under another name, also in answers."""
    return _answers_renamed(_renamed(nb, "comparison", name, to), name, to)


def rename_claim(nb: Notebook, name: str, to: str) -> Notebook:
    """The claim `name` under another name, also in answers."""
    return _answers_renamed(_renamed(nb, "claim", name, to), name, to)


def _renamed(nb: Notebook, kind: Kind, name: str, to: str) -> Notebook:
    _require_name(to)
    index = _index(nb, kind, name)
    assert index is not None, f"no {kind} {name}"
    return replaced(nb, index, with_name(nb.cells[index].source, kind, to))


def with_name(source: str, kind: Kind, to: str) -> str:
    """The text of a cell with another name in its first line."""
    first, *others = split_lines(source)
    first = re.sub(rf"({kind}=)\S+", lambda match: f"{match.group(1)}{to}", first, count=1)
    return first + "".join(others)


def unique_name(nb: Notebook, wanted: str) -> str:
    """`wanted` as a valid name; if it is taken, with the first free number behind it."""
    base = re.sub(r"[^\w.+-]+", "-", wanted.strip()).strip("-") or "experiment"
    return free_name(base, {cell.name for cell in nb.cells if not isinstance(cell, Note)})


def free_name(wanted: str, taken: Collection[str]) -> str:
    """`wanted`; if it is taken, with the first free number behind it."""
    if wanted not in taken:
        return wanted
    stem = re.sub(r"-\d+$", "", wanted) or wanted
    return next(name for number in range(2, len(taken) + 3) if (name := f"{stem}-{number}") not in taken)


def _as_told(written: Mapping[str, Any], key: str, value: Any, before: Any) -> Any:
    return written[key] if key in written and value == before else value


def _experiment_body(values: Mapping[str, Any]) -> str:
    repeats = f"repeats: {values['repeats']}\n" if "repeats" in values else ""
    config = {key: values["config"][key] for key in sorted(values["config"], key=_place)}
    return f"{repeats}config:\n{yaml_flow.block(config, 2)}" if config else f"{repeats}config: {{}}\n"


def _search_line(key: str, value: Any) -> str:
    """Dimensions one a line below `space:`, a config as in an experiment, all else on the line of its key."""
    if key == "space" and isinstance(value, Mapping) and value:
        return "space:\n" + "".join(
            f"  {yaml_flow.key_text(name)}: {yaml_flow.flow(dimension)}\n" for name, dimension in value.items()
        )
    if key == "config" and isinstance(value, Mapping) and value:
        return _experiment_body({"config": value})
    return f"{yaml_flow.key_text(key)}: {yaml_flow.flow(value)}\n"


def _place(key: str) -> int:
    """Of a config's top key, in the order in which LightningCLI prints them."""
    return yaml.TOP_KEYS.index(key) if key in yaml.TOP_KEYS else len(yaml.TOP_KEYS)


def _index(nb: Notebook, kind: Kind, name: str) -> int | None:
    for index, cell in enumerate(nb.cells):
        if not isinstance(cell, Note) and cell.name == name and _kind(cell) == kind:
            return index
    return None


def _kind(cell: Told | BrokenCell) -> Kind:
    if isinstance(cell, BrokenCell):
        return cell.kind
    if isinstance(cell, SearchCell):
        return "search"
    if isinstance(cell, ClaimCell):
        return "claim"
    if isinstance(cell, AnswerCell):
        return "answer"
    return "comparison" if isinstance(cell, ComparisonCell) else "experiment"


def _told(cell: Cell) -> dict[str, Any]:
    """The YAML of a cell; empty for one that is broken."""
    return {} if isinstance(cell, BrokenCell) else load_mapping(fences(cell.source)[0].body)


def _behind(nb: Notebook, fenced: int) -> int:
    """The index behind the first `fenced` cells that are no notes."""
    if fenced == 0:
        return 0
    return [index for index, cell in enumerate(nb.cells) if not isinstance(cell, Note)][fenced - 1] + 1


def _new_cell(
    nb: Notebook, kind: Kind, name: str, body: str, position: int | None, values: Mapping[str, Any]
) -> Notebook:
    _require_name(name)
    source = f"```yaml {kind}={name}\n{body}```\n"
    return _verified(inserted(nb, len(nb.cells) if position is None else position, source), kind, name, values)


def _changed(nb: Notebook, index: int, written: Mapping[str, Any], values: Mapping[str, Any], anew: str) -> Notebook:
    """The YAML of cell `index`, which reads as `written`, changed to `values`; `anew` where that is impossible."""
    if written and yaml_flow.same(written, values):
        return nb
    source = nb.cells[index].source
    fence = fences(source)[0]
    front = (
        f"repeats: {values['repeats']}\n" if "repeats" in values and "repeats" not in written else ""
    )  # above `config:`
    rest = {key: value for key, value in values.items() if not front or key != "repeats"}
    body = patch(fence.body, written, rest) if written else None
    body = anew if body is None else front + body
    lines = split_lines(source)
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip(" "))]
    closing = lines[fence.end - 1 :] if fence.closed else [f"{indent}```\n"]
    inner = "".join(indent + line for line in split_lines(body if body.endswith("\n") else f"{body}\n"))
    done = replaced(nb, index, lines[0] + inner.replace("\n", line_end(source)) + "".join(closing))
    return _verified(done, fence.kind, fence.name, values)


def _verified(nb: Notebook, kind: Kind, name: str, values: Mapping[str, Any]) -> Notebook:
    """`nb`, once it is certain that the cell reads back as `values`."""
    index = _index(nb, kind, name)
    if index is None or not yaml_flow.same(_told(nb.cells[index]), values):
        raise ConfigError(
            name, "contains a value that YAML cannot represent", "Use numbers, text, lists and mappings only."
        )
    return nb


def _require_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise ConfigError("name", f"{name!r} cannot be the name of a cell", NAME_REMEDY)
