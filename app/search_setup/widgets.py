"""The form of a search: the experiment, the space, the method, and the plan beside it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final, Literal

import streamlit as st

from scalebook.app import state
from scalebook.app.search.data import Body, goal_of, objectives
from scalebook.app.search_setup.data import KINDS, Example, Row, SearchField, first_row, kind_of, with_objectives
from scalebook.app.shared import html
from scalebook.app.shared.widgets import choose_better, code_block, number_box, press_button
from scalebook.app.shared.words import plain
from scalebook.training.base import ConfigError
from scalebook.training.base.files import yaml
from scalebook.training.experiments import Experiment, Field, classes
from scalebook.training.experiments.search import AMOUNTS, PRESETS, Kind, keys
from scalebook.training.tracking import Direction

WIDTHS: Final = [2.5, 3.1, 7.6, 0.8]
AS_IT_IS: Final = ""  # None would make the list one that can be cleared
POWERS: Final = [2**exponent for exponent in range(21)]
RULES: Final = {
    AS_IT_IS: "stays the same",
    "linear": "grows linearly",
    "sqrt": "grows with the square root",
    "none": "stays, with a warm-up",
}
RULE_HELP: Final = (
    "The learning rate then applies to the reference batch size, and is scaled to the batch size of each trial, "
    "either linearly (Goyal et al. 2017) or with the square root."
)


def dimension_heads() -> None:
    """Draw the titles of the columns."""
    with st.container(key="dimension-heads"):
        for place, word in zip(st.columns(WIDTHS), ("Field", "Scale", "Range, or list of values", ""), strict=True):
            with place:
                html.draw(f'<div class="sb-eyebrow">{escape(word)}</div>')


def dimension(field: SearchField, row: Mapping[str, Any], key: str) -> Row | None:
    """Draw a dimension as a row: field, kind of range, values; returns its present values, None when it is removed.
    Keys of the row without a widget stay."""
    name, choice, values, end = st.columns(WIDTHS, vertical_alignment="center")
    with name:
        html.draw(_title(field))
    before = kind_of(row)
    kinds: list[Kind] = list(dict.fromkeys([*([before] if before else []), *field.kinds]))
    with choice:
        kind = st.selectbox(f"Kind of {field.name}", kinds, format_func=KINDS.__getitem__, key=f"{key}.kind",
                            label_visibility="collapsed")  # fmt: skip
    with end:
        if st.button(":material/close:", key=f"{key}.remove", type="tertiary", help=f"Do not vary {field.name}"):
            return None
    start = dict(row) if kind == before else {**first_row(field, kind), **_kept(row)}
    widgets = f"{key}.{kind}"
    with values:
        listed = kind in ("grid", "values")
        start[kind] = (_list if listed else _ends)(field, kind, start[kind], widgets)
    if field.name == "learning_rate":
        _rule(start, key)
    return start


def _title(field: SearchField) -> str:
    now = f"now {plain(field.present)}"
    title = field.title.removeprefix("trainer.")
    return f'<div class="sb-dimension"><b>{escape(title)}</b><span class="sb-dim">{escape(now)}</span></div>'


def _kept(row: Mapping[str, Any]) -> Row:
    """The keys that hold for any kind of range: the rule of a learning rate."""
    return {name: value for name, value in row.items() if name in ("rule", "per", "warmup_epochs")}


def _ends(field: SearchField, kind: Kind, written: Any, key: str) -> Any:
    """Draw the two ends of a range; anything but two numbers is shown as text, to be mended."""
    whole = kind in ("int", "powers_of_two")
    numbers = int if whole else int | float
    if not isinstance(written, list) or len(written) != 2 or not all(isinstance(end_, numbers) for end_ in written):
        return _free(f"Range of {field.name}", written, key)
    ends = []
    for end, place, value in zip(("From", "To"), st.columns(2), written, strict=True):
        label = f"{end}, {field.name}"
        with place:
            if kind == "powers_of_two" and value in POWERS:
                ends.append(st.selectbox(label, POWERS, POWERS.index(value), key=f"{key}.{end}",
                                          format_func="{:,}".format, label_visibility="collapsed"))  # fmt: skip
            else:
                ends.append(number_box(label, value, f"{key}.{end}", whole=whole, hidden=True))
    return ends


def _list(field: SearchField, kind: Kind, written: Any, key: str) -> Any:
    """Draw the choices of a field that has names for them, else a list as text: `16, 32, 64`."""
    label = f"Values of {field.name}"
    choices = field.field.choices if field.field.type in ("enum", "class") else []
    if field.field.type == "bool":
        choices = [True, False]
    if kind == "values" and choices and isinstance(written, list) and all(value in choices for value in written):
        return st.multiselect(label, choices, written, key=key, format_func=plain, label_visibility="collapsed",
                              placeholder="Choose some")  # fmt: skip
    return _free(label, written, key)


def _free(label: str, written: Any, key: str) -> Any:
    """Draw a box for values separated by commas. Text that is not YAML is returned as it is, and refused by the
    validation."""
    text = ", ".join(plain(value) for value in written) if isinstance(written, list) else plain(written)
    typed = st.text_input(label, text, key=key, label_visibility="collapsed", placeholder="16, 32, 64")
    try:
        return yaml.load(f"[{typed}]")
    except ConfigError:
        return typed


def _rule(row: Row, key: str) -> None:
    """Draw how the learning rate follows the batch size."""
    _, rule_column, per_column, warmup_column = st.columns([0.4, 5.2, 3.8, 4.6], vertical_alignment="bottom")
    before = str(row.get("rule") or AS_IT_IS)
    with rule_column:
        rules = [rule for rule in RULES if rule != "none" or before == "none"]
        index = rules.index(before) if before in rules else 0
        rule = st.selectbox("As the batch size grows, the learning rate", rules, index, format_func=RULES.__getitem__,
                            key=f"{key}.rule", help=RULE_HELP)  # fmt: skip
    if rule == AS_IT_IS:
        for name in ("rule", "per", "warmup_epochs"):
            row.pop(name, None)
        return
    row["rule"] = rule
    with per_column:
        row["per"] = number_box("Reference batch", row.get("per", 256), f"{key}.per", whole=True,
                                     hint="Batch size that the learning rate applies to.")  # fmt: skip
    with warmup_column:
        epochs = number_box("Warm-up, epochs", row.get("warmup_epochs", 0), f"{key}.warmup", empty="none",
                                 hint="Epochs over which the rate rises to its scaled value.")  # fmt: skip
    if epochs or "warmup_epochs" in row:
        row["warmup_epochs"] = epochs


OWN: Final = ""
"""The card without a preset."""
OWN_TITLE, OWN_TEXT = "Choose fields", "You can vary any field of the experiment. Each field has a separate range."
SCALINGS: Final[dict[str, tuple[str, str]]] = {
    "strong": ("Global: the workers share the batch",
               "Strong scaling: the work is the same for any number of workers."),
    "weak": ("Per worker: the global batch grows with the workers",
             "Weak scaling: the work grows with the workers."),
}  # fmt: skip
EXCLUSIVE_TEXT: Final = (
    "Runs one trial at a time, without other runs. This takes longer, but only then can seconds be compared, because "
    "simultaneous trials slow each other down."
)
SIMULATED_TEXT: Final = (
    "Runs one trial at a time, without other runs. This is not needed here, because the seconds of virtual workers "
    "come from the specified clock and do not depend on what else is running."
)
SECONDS: Final = "seconds"
USUAL_S: Final = 20
NOTHING: Final = ""  # None would make the list one that can be cleared
AS_EXPERIMENT: Final = "as the experiment"


@dataclass(frozen=True)
class FirstStep:
    """The values of the first step: the body, and the clicks that need new widgets."""

    body: Body
    preset: str | None = None
    """The clicked card; OWN is the one without a preset."""
    changed: bool = False
    """A dimension was added or removed."""


def experiment(notebooks: Mapping[str, str], notebook: str, cells: Sequence[str], cell: str, key: str,
               fixed: bool) -> tuple[str, str]:  # fmt: skip
    """Draw the choice of notebook and experiment, both fixed while a search cell is edited; returns them."""
    left, right = st.columns(2)
    with left:
        names = list(notebooks)
        chosen = st.selectbox("Notebook", names, names.index(notebook), format_func=lambda name: notebooks[name],
                             key=f"{key}.notebook", disabled=fixed)  # fmt: skip
    with right:
        index = list(cells).index(cell) if cell in cells else None
        picked = st.selectbox("Experiment", cells, index, key=f"{key}.{notebook}.experiment", disabled=fixed,
                              placeholder="Choose one",
                              help=keys.HELP["experiment"])  # fmt: skip
    return chosen, picked or ""


def first_step(body: Body, fields: Sequence[SearchField], key: str) -> FirstStep:
    """Draw step 1: presets, dimensions, strong or weak scaling."""
    st.header("Search space")
    preset = _cards(str(body.get("preset") or OWN), bool(body.get("space")), key)
    space, changed = _space(classes.mapping(body.get("space")), fields, key)
    body = {**body, "space": space}
    st.header("Batch size is")
    body["scaling"] = _scaling(str(body.get("scaling", "strong")), key)
    return FirstStep(body, preset, changed)


def _cards(chosen: str, begun: bool, key: str) -> str | None:
    """Draw a card for each preset and one without; returns the clicked one."""
    pressed: str | None = None
    cards = [
        *((preset.name, preset.title.replace(" x ", " × "), preset.text) for preset in PRESETS),
        (OWN, OWN_TITLE, OWN_TEXT),
    ]
    for place, (name, title, text) in zip(st.columns(len(cards)), cards, strict=True):
        is_chosen = name == chosen and (begun or name != OWN)
        state = "chosen" if is_chosen else "free"
        with place, st.container(border=True, height="stretch", key=f"{key}.preset-{state}-{name or 'own'}"):
            html.draw(f'<div class="sb-card"><b>{escape(title)}</b><span>{escape(text)}</span></div>')
            if st.button("Chosen" if is_chosen else "Choose", key=f"{key}.choose-{name or 'own'}", type="tertiary",
                         disabled=is_chosen, icon=":material/check:" if is_chosen else None,
                         help=None if is_chosen else f"Begin with: {title}"):  # fmt: skip
                pressed = name
    return pressed


def _space(space: Mapping[str, Any], fields: Sequence[SearchField], key: str) -> tuple[Body, bool]:
    """Draw the dimensions in rows, and a list of all fields to add; returns the space, and whether its dimensions
    changed."""
    by_name = {field.name: field for field in fields}
    drawn: Body = {}
    changed = False
    if space:
        dimension_heads()
    for name, row in space.items():
        field = by_name.get(name) or SearchField(name, name, None, Field(name, "json"))
        new_row = dimension(field, classes.mapping(row), f"{key}.{name}")
        if new_row is None:
            changed = True
        else:
            drawn[name] = new_row
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
class OfferedMetrics:
    """The metrics offered as objectives, and the direction of each for which the body names none."""

    metrics: Sequence[str]
    better: Callable[[str], Direction]
    experiment: Experiment


def second_step(body: Body, offered: OfferedMetrics, key: str, simulated: bool) -> Body:
    """Draw step 2: objectives, sampler and pruner, budget, machine. `simulated`: as `SearchSpec.is_simulated`."""
    body = dict(body)
    st.header("Objective")
    _objectives(body, offered, key)
    st.header("Sampling and pruning")
    left, right = st.columns(2)
    with left:
        _sampler(body, key)
    with right:
        body["pruner"] = _choice("Pruner", keys.PRUNERS, str(body.get("pruner", "none")), key,
                                 keys.HELP["pruner"])  # fmt: skip
    st.header("Budget")
    _budget(body, key)
    st.header("Machine")
    exclusive = body.get("exclusive")
    wanted = st.toggle("Exclusive: makes times comparable", bool(exclusive), key=f"{key}.exclusive")
    body["exclusive"] = exclusive if wanted and exclusive else wanted
    st.caption(SIMULATED_TEXT if simulated else EXCLUSIVE_TEXT)
    left, right = st.columns(2)
    with left:
        _number(body, "failures", "Failures allowed before the search stops", key, 10, keys.HELP["failures"])
    with right:
        _number(body, "memory_mb", "Memory per process, MB", key, None, keys.HELP["memory_mb"])
    return body


def _objectives(body: Body, offered: OfferedMetrics, key: str) -> None:
    names = objectives(body)
    options = list(dict.fromkeys([*offered.metrics, *AMOUNTS, *names]))
    directions = {}
    left, middle, right = st.columns([2, 2, 1])
    with left:
        first = st.selectbox("Objective", options, options.index(names[0]) if names else 0, key=f"{key}.objective",
                             accept_new_options=True, placeholder="Choose a metric, or type its name",
                             help="The metric to optimize. You can also type another name.") or ""  # fmt: skip
        if first and first not in AMOUNTS:
            directions[first] = choose_better(offered.better(first), goal_of(body, first), f"{key}.better.{first}")
    with middle:
        others = [NOTHING, *(name for name in options if name != first)]
        second = names[1] if len(names) > 1 and names[1] != first else NOTHING
        other = st.selectbox("Second objective", others, others.index(second), key=f"{key}.objective2.{first}",
                             format_func=lambda name: "none" if name == NOTHING else name,
                             help="With two objectives, the search looks for the Pareto front: the points that no "
                                  "other point beats in both objectives.")  # fmt: skip
        if other != NOTHING and other not in AMOUNTS:
            directions[other] = choose_better(offered.better(other), goal_of(body, other), f"{key}.better2.{other}")
    body["objective"] = with_objectives([first] if other == NOTHING else [first, other], directions, offered.experiment)
    with right:
        target = body.get("target")
        body["target"] = number_box("Target", target, f"{key}.target", empty="none", hint=keys.HELP["target"])


def _sampler(body: Body, key: str) -> None:
    sampler = body.get("sampler", "tpe")
    name = next(iter(sampler), "tpe") if isinstance(sampler, dict) else str(sampler)
    method = _choice("Sampler", keys.SAMPLERS, name, key, keys.HELP["sampler"])
    body["sampler"] = sampler if method == name else method  # with the seed that a cell may give it


def _choice(label: str, entries: Mapping[str, keys.MethodChoice], before: str, key: str, hint: str) -> str:
    words = list(entries)
    chosen = str(st.selectbox(label, words, words.index(before) if before in words else 0, key=f"{key}.{label}",
                            format_func=lambda method: entries[method].title, help=hint))  # fmt: skip
    st.caption(entries[chosen].text)
    return chosen


def _budget(body: Body, key: str) -> None:
    trials, seeds, minutes = st.columns(3)
    with trials:
        _number(body, "trials", "Trials", key, 30, keys.HELP["trials"])
    with seeds:
        _number(body, "seeds", "Seeds per trial", key, 1, keys.HELP["seeds"])
    with minutes:
        hint = keys.HELP["minutes"]
        body["minutes"] = number_box(
            "Time limit, minutes", body.get("minutes"), f"{key}.minutes", empty="no limit", hint=hint
        )
    kind_column, amount_column = st.columns([2, 1], vertical_alignment="bottom")
    timed = body.get("seconds_per_trial") is not None
    with kind_column:
        kind = st.segmented_control("Length of a run", [AS_EXPERIMENT, SECONDS],
                                    default=SECONDS if timed else AS_EXPERIMENT, required=True, key=f"{key}.timed",
                                    help="The experiment's length, or a fixed time for each trial.")  # fmt: skip
    with amount_column:
        if kind == SECONDS:
            before = body.get("seconds_per_trial") or USUAL_S
            typed = number_box("Seconds", before, f"{key}.seconds", whole=True, empty=f"{USUAL_S} (default)")
            body["seconds_per_trial"] = USUAL_S if typed is None else typed
        else:
            body["seconds_per_trial"] = None


def _number(body: Body, name: str, label: str, key: str, default: int | None, hint: str) -> None:
    """Draw a box for a whole number and put it at `name`; empty, it is the default."""
    empty = "no limit" if default is None else f"{default} (default)"
    typed = number_box(label, body.get(name, default), f"{key}.{name}", whole=True, hint=hint, empty=empty)
    body[name] = default if typed is None else typed


def steps(step: int, key: str) -> int:
    """Draw the switch between the two steps; returns the chosen one."""
    words = {1: "1  Space", 2: "2  Method"}
    return int(st.segmented_control("Step", list(words), default=step, required=True, format_func=words.__getitem__,
                                    key=f"{key}.step", label_visibility="collapsed"))  # fmt: skip


def step_button(step: int, key: str) -> int:
    """Draw the button at the end of a step; returns the step to show."""
    if step == 1:
        return (
            2
            if st.button("Next: sampler and pruner", icon=":material/arrow_forward:", key=f"{key}.next", type="primary")
            else 1
        )
    return 1 if st.button("Back", icon=":material/arrow_back:", key=f"{key}.back") else 2


Intent = Literal["start", "save"]
KEYS: Final[dict[Intent, str]] = {"start": "search-start", "save": "search-save"}


def plan_buttons(blocked: bool, stamp: str) -> Intent | None:
    """Start search and Save. A click while `blocked` has no effect, and a toast says why. `stamp` as in
    `state.Clicks`."""
    with st.container(horizontal=True, vertical_alignment="center", key="search-buttons"):
        start = press_button(
            "Start search", KEYS["start"], stamp, type="primary", icon=":material/play_arrow:", disabled=blocked
        )
        save = press_button("Save", KEYS["save"], stamp, icon=":material/save:", disabled=blocked)
    st.caption(
        "Both **Start** and **Save** add the search to the notebook, below its experiment. Start (Ctrl+Enter) also "
        "starts the search. Save: Ctrl+S."
    )
    intent: Intent | None = "start" if start else "save" if save else None
    if intent and blocked:
        state.clicks().mark_handled(KEYS[intent], done=False)
        state.show_message(
            f"Not {'started' if start else 'saved'}: fix what is marked in red first.", ":material/error:"
        )
        return None
    return intent


def plan_about(text: str, remark: str) -> None:
    """Draw how many runs the search starts, and how long it takes."""
    st.markdown(f"**{text}**")
    if remark:
        st.caption(remark)


def plan_examples(listed: Sequence[Example]) -> None:
    """Draw points of the space as they would run, with their batch sizes and rates."""
    if not listed:
        return
    html.draw('<div class="sb-eyebrow">Examples of points that would run</div>')
    rows: list[list[html.Cell]] = []
    for example in listed:
        if example.trial is None:
            rows.append([html.text(example.words, "wrap"), html.text(example.problem, "wrap dim")])
            continue
        batch, rate = example.trial.batch, example.trial.rate.applied
        sizes = (batch.per_worker, batch.together, batch.effective)
        cells = [html.number("" if size is None else f"{size:,}") for size in sizes]
        rows.append(
            [html.text(example.words, "wrap"), *cells, html.number("" if rate is None else f"{float(f'{rate:.3g}'):g}")]
        )
    scaled = any(example.trial is not None and example.trial.rate.scaled is not None for example in listed)
    rate_title = "scaled rate" if scaled else "rate"
    html.draw(html.table(["Point", "per worker", "global", "effective", rate_title], rows, numeric=range(1, 5)))


def plan_text(cell: str, command: str) -> None:
    """Draw the cell's text, and the command that runs it without a browser."""
    html.draw('<div class="sb-eyebrow">Notebook cell</div>')
    code_block(cell, "yaml", wrap=True)
    html.draw('<div class="sb-eyebrow">Run from the command line</div>')
    code_block(command, wrap=True)
