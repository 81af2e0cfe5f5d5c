"""The form of a claim: what it is about, which figure, within which bounds; each field says what is wrong with it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from scalebook.app.compare.services import claim_plans
from scalebook.app.compare.services.claim_plans import FIELDS, FIGURES, ClaimPlan
from scalebook.app.shared.widgets import choose_better, number_box, press_button
from scalebook.training.errors import ConfigError, Problem
from scalebook.training.notebook.claim_body import OF
from scalebook.training.tracking import directions
from scalebook.training.tracking.names import AXES

SAVE = "claim-form-save"
NOTHING = ""
PART_HINT = " For a part of a search, type `workers: 4` and choose the search below."
RATIO = "Ratio to the baseline: at most 0.8 means at least 20 % less."
OWN = "A bound on the figure itself."
TARGET = "The value of the metric to reach."
RATIOS = "Whether something costs one model more than another: each ratio may have its own metric, target and search."
WORDS = {OF: "Experiment", "against": "Baseline"}


def draw(plan: ClaimPlan, check: Callable[[Mapping[str, Any], str], list[Problem]]) -> tuple[str, dict[str, Any], bool]:
    """The name, the values by key, and whether they can be saved. `check` says what is wrong, by key."""
    key, slots, written = f"claim-{plan.stored.path.name}-{plan.editing}", {}, plan.written
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    with left:
        name = st.text_input(FIELDS["name"], plan.name, key=f"{key}-name").strip()
    with right:
        of_ratios = st.toggle("Compare two ratios", plan.of_ratios, key=f"{key}-ratios", help=RATIOS)
    slots["name"] = st.empty()
    wrong: list[Problem] = []
    said = _ratios(plan, key, slots, wrong) if of_ratios else _sides(plan, key, slots, wrong)
    sides = [*said["runs"], said["against"]]
    if plan.searches and not of_ratios:
        said |= _search(plan.searches, written, key, slots)
    said |= _figure(plan, key, slots, sides, of_ratios, said.get("search", NOTHING))
    problems = wrong or check(said, name)
    _tell(problems, slots)
    return name, said, not any(problem.severity == "error" for problem in problems)


def _sides(plan: ClaimPlan, key: str, slots: dict[str, DeltaGenerator], wrong: list[Problem]) -> dict[str, Any]:
    left, right = st.columns(2)
    with left:
        hint = "The claim must hold for each of them." + (PART_HINT if plan.searches else "")
        runs = st.multiselect(FIELDS["runs"], plan.sides, [claim_plans.side_text(run) for run in plan.runs],
                              key=f"{key}-runs", accept_new_options=bool(plan.searches), help=hint,
                              placeholder="Choose experiments")  # fmt: skip
        slots["runs"] = st.empty()
    with right:
        against = _side(plan, FIELDS["against"], plan.against, f"{key}-against", "nothing: bound the figure itself")
        slots["against"] = st.empty()
    sides = [_read(text, "runs", wrong) for text in runs]
    return {"runs": sides, "against": _read(against, "against", wrong) if against else None}


def _ratios(plan: ClaimPlan, key: str, slots: dict[str, DeltaGenerator], wrong: list[Problem]) -> dict[str, Any]:
    """Two ratios, each with a box of its own."""
    said: dict[str, Mapping[str, Any]] = {}
    for place, at in zip(st.columns(2), ("runs", "against"), strict=True):
        before = plan.ratio(at)
        with place, st.container(border=True, key=f"{key}-{at}-ratio"):
            st.markdown(f"**{FIELDS[at]}**")
            sides = {}
            for word in (OF, "against"):
                text = claim_plans.side_text(before[word]) if before.get(word) is not None else NOTHING
                sides[word] = _side(plan, WORDS[word], text, f"{key}-{at}-{word}", "Choose one")
                slots[f"{at}.{word}"] = st.empty()
            parts = {word: _read(text, f"{at}.{word}", wrong) if text else None for word, text in sides.items()}
            chosen = _search(plan.searches, before, f"{key}-{at}", slots, f"{at}.") if plan.searches else {}
            both = [*parts.values()]
            metric = _metric(plan, before, f"{key}-{at}-metric", both, chosen.get("search", NOTHING))
            slots[f"{at}.metric"] = st.empty()
            target = number_box(FIELDS["target"], before.get("target"), f"{key}-{at}-target", hint=TARGET)
            slots[f"{at}.target"] = st.empty()
            slots[at] = st.empty()
        said[at] = {**parts, "metric": metric, "target": target, **chosen}
    return plan.ratios(said)


def _side(plan: ClaimPlan, label: str, text: str, key: str, empty: str) -> str:
    sides = list(dict.fromkeys([NOTHING, *plan.sides, text]))
    return st.selectbox(label, sides, sides.index(text), key=key, accept_new_options=bool(plan.searches),
                        format_func=lambda side: side or empty) or NOTHING  # fmt: skip


def _read(text: str, key: str, wrong: list[Problem]) -> Any:
    try:
        return claim_plans.side(text)
    except ConfigError as error:
        wrong.append(Problem(key, error.problem.message, "Write a part of a search as workers: 4."))
        return None


def _metric(
    plan: ClaimPlan, before: Mapping[str, Any], key: str, sides: Sequence[Any], search: str, curve: bool = True
) -> Any:
    """As YAML, with what is better of it where a person says so. `curve`: whether the figure depends on that."""
    metric = claim_plans.metric_of(before)
    metrics = list(dict.fromkeys([*plan.metrics, metric]))
    chosen = st.selectbox(FIELDS["metric"], metrics, metrics.index(metric), key=key, accept_new_options=True,
                          help="Or type another name.")  # fmt: skip
    name = (chosen or "").strip()
    if not name or not curve:
        return name
    said = claim_plans.goal_of(before) if name == metric else None
    told = choose_better(plan.better(sides, search, name), said, f"{key}-better-{name}")
    return directions.written(name, None if told.source != "said" else "min" if told.lower else "max")


def _figure(
    plan: ClaimPlan, key: str, slots: dict[str, DeltaGenerator], sides: Sequence[Any], of_ratios: bool,
    search: str,
) -> dict[str, Any]:  # fmt: skip
    """With bounds; of two ratios each has a metric and a target of its own. `sides`: the baseline last, or None."""
    written, options = plan.written, list(FIGURES)
    left, right = st.columns(2)
    with left:
        before = written.get("figure", "samples")
        figure = st.selectbox(FIELDS["figure"], options, options.index(before) if before in options else 0,
                              format_func=FIGURES.__getitem__, key=f"{key}-figure")  # fmt: skip
        slots["figure"] = st.empty()
    said: dict[str, Any] = {"figure": figure}
    if not of_ratios:
        with right:
            said["metric"] = _metric(plan, written, f"{key}-metric", sides, search, figure in (*AXES, "best"))
            slots["metric"] = st.empty()
    aims, hints = figure in AXES, {"target": TARGET}
    fields = ("at_least", "at_most") if of_ratios else ("target", "at_least", "at_most")
    for place, field in zip(st.columns(len(fields)), fields, strict=True):
        with place:  # always all three: what moves on a page forgets what is being typed into it
            hint, off = hints.get(field, RATIO if sides[-1] else OWN), field == "target" and not aims
            empty = "" if field == "target" else "no bound"
            said[field] = number_box(
                FIELDS[field], written.get(field), f"{key}-{field}", empty=empty, hint=hint, disabled=off
            )
            slots[field] = st.empty()
    if not aims:
        said.pop("target", None)
    return said


def _search(
    searches: Sequence[str], written: Mapping[str, Any], key: str, slots: dict[str, DeltaGenerator], at: str = ""
) -> dict[str, Any]:
    """Only where the notebook has one."""
    options = list(dict.fromkeys([NOTHING, *searches, written.get("search", NOTHING)]))
    search = st.selectbox(FIELDS["search"], options, options.index(written.get("search", NOTHING)),
                          key=f"{key}-search", format_func=lambda name: name or "none",
                          help="The search that `workers: 4` belongs to.")  # fmt: skip
    slots[f"{at}search"] = st.empty()
    return {"search": search} if search else {}


def _tell(problems: Sequence[Problem], slots: Mapping[str, DeltaGenerator]) -> None:
    """Each below its field: mistakes in red, what only has no effect yet in grey."""
    lines: dict[str, list[str]] = {}
    for problem in sorted(problems, key=lambda problem: problem.severity):  # errors first
        field = next((key for key in _above(problem.key) if key in slots), "name")
        label = ({**FIELDS, **WORDS} if "." in field else FIELDS)[field.rpartition(".")[2]]
        words = f"{label}: {problem.message.rstrip('.')}. {problem.remedy}"
        lines.setdefault(field, []).append(f":red[{words}]" if problem.severity == "error" else words)
    for field, words_ in lines.items():
        slots[field].caption("  \n".join(words_))


def _above(key: str) -> list[str]:
    """The key, and those that it is part of; the form has one entry for the list of `runs`."""
    parts = key.replace("runs.0.", "runs.").split(".")
    return [".".join(parts[:length]) for length in range(len(parts), 0, -1)]


def save(enabled: bool, shown: str) -> bool | None:
    """True: save; False: give it up. `shown` as in `state.Clicks`."""
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Cancel", key="claim-form-cancel"):
            return False
        if press_button("Save", SAVE, shown, type="primary", disabled=not enabled):
            return True if enabled else None
    return None
