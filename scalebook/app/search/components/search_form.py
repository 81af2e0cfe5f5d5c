"""The two steps of setting up a search: what is varied, and how. Each draws a body and returns what it says now."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

import streamlit as st

from scalebook.app.search.components import search_dimension
from scalebook.app.search.services.search_fields import SearchField, first_row
from scalebook.app.search.services.search_setup import Body, goal_of, objectives, with_objectives
from scalebook.app.shared import html
from scalebook.app.shared.widgets import choose_better, number_box
from scalebook.training.config.classes import mapping
from scalebook.training.config.description import Field
from scalebook.training.config.search.keys import PRUNERS, SAMPLERS, MethodChoice
from scalebook.training.config.search.presets import PRESETS
from scalebook.training.config.search.types import AMOUNTS
from scalebook.training.tracking.directions import Direction

OWN: Final = ""
"""The card without a preset."""

OWN_TITLE, OWN_TEXT = "Choose fields", "Any fields of the experiment, each with its own range."
SCALINGS: Final[dict[str, tuple[str, str]]] = {
    "strong": ("Global: more workers share the same batch",
               "Strong scaling: the same work for any number of workers."),
    "weak": ("Per worker: more workers make the global batch larger",
             "Weak scaling: the work grows with the workers."),
}  # fmt: skip
EXCLUSIVE_TEXT: Final = (
    "Runs one trial at a time, alone on the machine. Takes longer, but only then can seconds be "
    "compared: trials side by side slow each other down."
)
SIMULATED_TEXT: Final = (
    "Runs one trial at a time, alone on the machine. Not needed here: seconds of virtual workers "
    "are those of the declared clock, whatever runs beside them."
)
SECONDS: Final = "seconds"
USUAL_S: Final = 20
NOTHING: Final = ""  # None would make the list one that can be cleared
AS_EXPERIMENT: Final = "as the experiment"


@dataclass(frozen=True)
class StepOne:
    """What the first step says: the body, and what was asked for that makes all widgets new."""

    body: Body
    preset: str | None = None
    """A card that was pressed; OWN for the one without a preset."""
    changed: bool = False
    """A dimension was added or removed."""


def experiment(notebooks: Mapping[str, str], notebook: str, cells: Sequence[str], cell: str, key: str,
               fixed: bool) -> tuple[str, str]:  # fmt: skip
    """Which experiment, of which notebook; both fixed while a search cell is edited."""
    left, right = st.columns(2)
    with left:
        names = list(notebooks)
        chosen = st.selectbox("Notebook", names, names.index(notebook), format_func=lambda name: notebooks[name],
                             key=f"{key}.notebook", disabled=fixed)  # fmt: skip
    with right:
        index = list(cells).index(cell) if cell in cells else None
        picked = st.selectbox("Experiment", cells, index, key=f"{key}.{notebook}.experiment", disabled=fixed,
                              placeholder="Choose one",
                              help="The search varies its config; the cell does not change.")  # fmt: skip
    return chosen, picked or ""


def first(body: Body, fields: Sequence[SearchField], key: str) -> StepOne:
    """Step 1: presets, dimensions, strong or weak scaling."""
    st.header("Search space")
    preset = _cards(str(body.get("preset") or OWN), bool(body.get("space")), key)
    space, changed = _space(mapping(body.get("space")), fields, key)
    body = {**body, "space": space}
    st.header("Batch size is")
    body["scaling"] = _scaling(str(body.get("scaling", "strong")), key)
    return StepOne(body, preset, changed)


def _cards(chosen: str, begun: bool, key: str) -> str | None:
    """A card for each preset and one for none; returns the one that was pressed."""
    pressed: str | None = None
    cards = [
        *((preset.name, preset.title.replace(" x ", " × "), preset.text) for preset in PRESETS),
        (OWN, OWN_TITLE, OWN_TEXT),
    ]
    for place, (name, title, text) in zip(st.columns(len(cards)), cards, strict=True):
        mine = name == chosen and (begun or name != OWN)
        state = "chosen" if mine else "free"
        with place, st.container(border=True, height="stretch", key=f"{key}.preset-{state}-{name or 'own'}"):
            html.draw(f'<div class="sb-card"><b>{escape(title)}</b><span>{escape(text)}</span></div>')
            if st.button("Chosen" if mine else "Choose", key=f"{key}.choose-{name or 'own'}", type="tertiary",
                         disabled=mine, icon=":material/check:" if mine else None,
                         help=None if mine else f"Begin with: {title}"):  # fmt: skip
                pressed = name
    return pressed


def _space(space: Mapping[str, Any], fields: Sequence[SearchField], key: str) -> tuple[Body, bool]:
    """The dimensions in rows, and a list of all fields to add one from; whether one came or went."""
    known = {field.name: field for field in fields}
    drawn: Body = {}
    changed = False
    if space:
        search_dimension.heads()
    for name, row in space.items():
        field = known.get(name) or SearchField(name, name, None, Field(name, "json"))
        said = search_dimension.draw(field, mapping(row), f"{key}.{name}")
        if said is None:
            changed = True
        else:
            drawn[name] = said
    rest = [field for field in fields if field.name not in space]
    added = st.selectbox("Add a field", rest, None, format_func=lambda field: field.label, key=f"{key}.add",
                         placeholder="Any field of the config: type part of its name")  # fmt: skip
    if added is not None:
        drawn[added.name] = first_row(added)
        changed = True
    return drawn, changed


def _scaling(before: str, key: str) -> str:
    words = list(SCALINGS)
    return str(
        st.radio(
            "Batch size is",
            words,
            words.index(before) if before in words else 0,
            format_func=lambda scaling: SCALINGS[scaling][0],
            captions=[SCALINGS[word][1] for word in words],
            key=f"{key}.scaling",
            label_visibility="collapsed",
        )
    )


@dataclass(frozen=True)
class Offered:
    """Metrics to choose an objective from, and what is better of one that says nothing of it."""

    metrics: Sequence[str]
    better: Callable[[str], Direction]
    config: Mapping[str, Any]


def second(body: Body, offered: Offered, key: str, simulated: bool) -> Body:
    """Step 2: objectives, how points are chosen, budget, the machine. `simulated`: as `SearchSpec.is_simulated`."""
    body = dict(body)
    st.header("Objective")
    _objectives(body, offered, key)
    st.header("Sampling and pruning")
    left, right = st.columns(2)
    with left:
        _sampler(body, key)
    with right:
        body["pruner"] = _choice("Pruner", PRUNERS, str(body.get("pruner", "none")), key,
                                 "Ends runs early that will not be among the best.")  # fmt: skip
    st.header("Budget")
    _budget(body, key)
    st.header("Machine")
    said = body.get("exclusive")
    wanted = st.toggle("Exclusive: makes times comparable", bool(said), key=f"{key}.exclusive")
    body["exclusive"] = said if wanted and said else wanted
    st.caption(SIMULATED_TEXT if simulated else EXCLUSIVE_TEXT)
    left, right = st.columns(2)
    with left:
        _number(body, "failures", "Failures before the search stops", key, 10,
                "Counts runs that died, not those that diverged or ran out of memory.")  # fmt: skip
    with right:
        _number(body, "memory_mb", "Memory per process, MB", key, None,
                "In addition to what it starts with. A trial that needs more counts as out of memory.")  # fmt: skip
    return body


def _objectives(body: Body, offered: Offered, key: str) -> None:
    names = objectives(body)
    options = list(dict.fromkeys([*offered.metrics, *AMOUNTS, *names]))
    told = {}
    left, middle, right = st.columns([2, 2, 1])
    with left:
        first = st.selectbox("Objective", options, options.index(names[0]) if names else 0, key=f"{key}.objective",
                             accept_new_options=True, placeholder="Choose one, or type its name",
                             help="The metric to optimize. Or type another name.") or ""  # fmt: skip
        if first and first not in AMOUNTS:
            told[first] = choose_better(offered.better(first), goal_of(body, first), f"{key}.better.{first}")
    with middle:
        others = [NOTHING, *(name for name in options if name != first)]
        second = names[1] if len(names) > 1 and names[1] != first else NOTHING
        other = st.selectbox("Second objective", others, others.index(second), key=f"{key}.objective2.{first}",
                             format_func=lambda name: "none" if name == NOTHING else name,
                             help="With two objectives the search looks for the Pareto front: points that no other "
                                  "point beats in both.")  # fmt: skip
        if other != NOTHING and other not in AMOUNTS:
            told[other] = choose_better(offered.better(other), goal_of(body, other), f"{key}.better2.{other}")
    body["objective"] = with_objectives([first] if other == NOTHING else [first, other], told, offered.config)
    with right:
        target = body.get("target")
        hint = "A value of the metric. Seconds, samples and updates then count until it is reached."
        body["target"] = number_box("Target", target, f"{key}.target", empty="none", hint=hint)


def _sampler(body: Body, key: str) -> None:
    sampler = body.get("sampler", "tpe")
    name = next(iter(sampler), "tpe") if isinstance(sampler, dict) else str(sampler)
    said = _choice("Sampler", SAMPLERS, name, key, "Chooses the next point.")
    body["sampler"] = sampler if said == name else said  # with the seed that a cell may give it


def _choice(label: str, entries: Mapping[str, MethodChoice], before: str, key: str, hint: str) -> str:
    words = list(entries)
    said = str(st.selectbox(label, words, words.index(before) if before in words else 0, key=f"{key}.{label}",
                            format_func=lambda method: entries[method].title, help=hint))  # fmt: skip
    st.caption(entries[said].text)
    return said


def _budget(body: Body, key: str) -> None:
    trials, seeds, minutes = st.columns(3)
    with trials:
        _number(body, "trials", "Trials", key, 30, "Number of points to try.")
    with seeds:
        _number(body, "seeds", "Seeds per trial", key, 1,
                "Runs per point, each with the next seed. Three give an interval.")  # fmt: skip
    with minutes:
        hint = "No new trial starts after this time."
        body["minutes"] = number_box(
            "Time limit, minutes", body.get("minutes"), f"{key}.minutes", empty="no limit", hint=hint
        )
    kind_column, amount_column = st.columns([2, 1], vertical_alignment="bottom")
    timed = body.get("seconds_per_trial") is not None
    with kind_column:
        kind = st.segmented_control("Length of a run", [AS_EXPERIMENT, SECONDS],
                                    default=SECONDS if timed else AS_EXPERIMENT, required=True, key=f"{key}.timed",
                                    help="The experiment's own, or a fixed time for each trial.")  # fmt: skip
    with amount_column:
        if kind == SECONDS:
            before = body.get("seconds_per_trial") or USUAL_S
            said = number_box("Seconds", before, f"{key}.seconds", whole=True, empty=f"{USUAL_S} (default)")
            body["seconds_per_trial"] = USUAL_S if said is None else said
        else:
            body["seconds_per_trial"] = None


def _number(body: Body, name: str, label: str, key: str, default: int | None, hint: str) -> None:
    """A whole number at `name`; the default where it is left empty."""
    empty = "no limit" if default is None else f"{default} (default)"
    said = number_box(label, body.get(name, default), f"{key}.{name}", whole=True, hint=hint, empty=empty)
    body[name] = default if said is None else said


def steps(step: int, key: str) -> int:
    """Which of the two is shown."""
    words = {1: "1  Space", 2: "2  Method"}
    return int(st.segmented_control("Step", list(words), default=step, required=True, format_func=words.__getitem__,
                                    key=f"{key}.step", label_visibility="collapsed"))  # fmt: skip


def turn(step: int, key: str) -> int:
    """The button at the end of a step."""
    if step == 1:
        return 2 if st.button("Next: method", icon=":material/arrow_forward:", key=f"{key}.next", type="primary") else 1
    return 1 if st.button("Back", icon=":material/arrow_back:", key=f"{key}.back") else 2
