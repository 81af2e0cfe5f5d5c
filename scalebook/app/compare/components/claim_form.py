"""The form of a claim: what it is about, which figure, within which bounds; each field says what is wrong with it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from scalebook.app.compare.services import claim_plans
from scalebook.app.compare.services.claim_plans import FIELDS, FIGURES, ClaimPlan
from scalebook.app.shared.components import number_box, press
from scalebook.training.errors import ConfigError, Problem
from scalebook.training.tracking.names import AXES

SAVE = "claim-form-save"
NOTHING = ""
PART_HINT = " For a part of a search, type `workers: 4` and choose the search below."
RATIO = "Ratio to the baseline: at most 0.8 means at least 20 % less."
OWN = "A bound on the figure itself."


def draw(plan: ClaimPlan, check: Callable[[Mapping[str, Any], str], list[Problem]]) -> tuple[str, dict[str, Any], bool]:
    """The name, the values by key, and whether they can be saved. `check` says what is wrong, by key."""
    key, slots, written = f"claim-{plan.stored.path.name}-{plan.editing}", {}, plan.written
    name = st.text_input(FIELDS["name"], plan.name, key=f"{key}-name").strip()
    slots["name"] = st.empty()
    left, right = st.columns(2)
    with left:
        hint = "The claim must hold for each of them." + (PART_HINT if plan.searches else "")
        runs = st.multiselect(FIELDS["runs"], plan.sides, [claim_plans.side_text(run) for run in plan.runs],
                              key=f"{key}-runs", accept_new_options=bool(plan.searches), help=hint,
                              placeholder="Choose experiments")  # fmt: skip
        slots["runs"] = st.empty()
    with right:
        sides = [NOTHING, *plan.sides]
        against = st.selectbox(FIELDS["against"], sides, sides.index(plan.against), key=f"{key}-against",
                               accept_new_options=bool(plan.searches),
                               format_func=lambda side: side or "nothing: bound the figure itself")  # fmt: skip
        slots["against"] = st.empty()
    said: dict[str, Any] = {"against": against or None}
    wrong: list[Problem] = []
    for field, texts in (("runs", runs), ("against", [against] if against else [])):
        try:
            sides_said = [claim_plans.side(text) for text in texts]
            said[field] = sides_said if field == "runs" else next(iter(sides_said), None)
        except ConfigError as error:
            wrong.append(Problem(field, error.problem.message, "Write a part of a search as workers: 4."))
    said |= _figure(plan, key, slots, bool(against))
    if plan.searches:
        said |= _search(plan, key, slots, written)
    problems = wrong or check(said, name)
    _tell(problems, slots)
    return name, said, not any(problem.severity == "error" for problem in problems)


def _figure(plan: ClaimPlan, key: str, slots: dict[str, DeltaGenerator], is_ratio: bool) -> dict[str, Any]:
    written, options = plan.written, list(FIGURES)
    left, right = st.columns(2)
    with left:
        before = written.get("figure", "samples")
        figure = st.selectbox(FIELDS["figure"], options, options.index(before) if before in options else 0,
                              format_func=FIGURES.__getitem__, key=f"{key}-figure")  # fmt: skip
        slots["figure"] = st.empty()
    with right:
        metrics = list(dict.fromkeys([*plan.metrics, plan.metric]))
        metric = st.selectbox(FIELDS["metric"], metrics, metrics.index(plan.metric), key=f"{key}-metric",
                              accept_new_options=True, help="Or type another name.")  # fmt: skip
        slots["metric"] = st.empty()
    said: dict[str, Any] = {"figure": figure, "metric": (metric or "").strip()}
    aims = figure in AXES
    hints = {"target": "The value of the metric to reach."}
    for place, field in zip(st.columns(3), ("target", "at_least", "at_most"), strict=True):
        with place:  # always all three: what moves on a page forgets what is being typed into it
            hint, off = hints.get(field, RATIO if is_ratio else OWN), field == "target" and not aims
            empty = "" if field == "target" else "no bound"
            said[field] = number_box.draw(
                FIELDS[field], written.get(field), f"{key}-{field}", empty=empty, hint=hint, disabled=off
            )
            slots[field] = st.empty()
    if not aims:
        del said["target"]
    return said


def _search(plan: ClaimPlan, key: str, slots: dict[str, DeltaGenerator], written: Mapping[str, Any]) -> dict[str, Any]:
    """Only where the notebook has one."""
    options = list(dict.fromkeys([NOTHING, *plan.searches, written.get("search", NOTHING)]))
    search = st.selectbox(FIELDS["search"], options, options.index(written.get("search", NOTHING)),
                          key=f"{key}-search", format_func=lambda name: name or "none",
                          help="The search that `workers: 4` belongs to.")  # fmt: skip
    slots["search"] = st.empty()
    return {"search": search} if search else {}


def _tell(problems: Sequence[Problem], slots: Mapping[str, DeltaGenerator]) -> None:
    """Each below its field: mistakes in red, what only has no effect yet in grey."""
    lines: dict[str, list[str]] = {}
    for problem in sorted(problems, key=lambda problem: problem.severity):  # errors first
        field = problem.key.partition(".")[0]
        field = field if field in slots else "name"
        words = f"{FIELDS[field]}: {problem.message.rstrip('.')}. {problem.remedy}"
        lines.setdefault(field, []).append(f":red[{words}]" if problem.severity == "error" else words)
    for field, words_ in lines.items():
        slots[field].caption("  \n".join(words_))


def save(enabled: bool, shown: str) -> bool | None:
    """True: save; False: give it up. `shown` as in `state.Clicks`."""
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Cancel", key="claim-form-cancel"):
            return False
        if press.button("Save", SAVE, shown, type="primary", disabled=not enabled):
            return True if enabled else None
    return None
