"""The top of a search: what became of its trials, how far it is, and the best so far with what can be done with it."""

from collections.abc import Sequence
from html import escape

import streamlit as st

from scalebook.app.search.charts import looks
from scalebook.app.search.services import search_view
from scalebook.app.shared import html
from scalebook.app.shared.words import sentence
from scalebook.training.config.search.types import SearchSpec
from scalebook.training.search.folder import SearchProgress
from scalebook.training.search.study.trials import TrialRecord

Intent = tuple[str, int | str]
"""("use", number of a trial) or ("open", id of a run)."""
CHIPS = {"infeasible": "out of memory"}  # which look a state's chip has, where it is not its own


def chips(records: Sequence[TrialRecord]) -> str:
    """A chip for each state that some trial is in, with their number; of the infeasible ones, why."""
    chips_ = []
    for state, count in search_view.counts(records).items():
        if count or state == "finished":
            light, dark = looks.LOOKS[CHIPS.get(state, state)].colours
            live = " sb-running" if state == "running" else ""
            causes = search_view.infeasible_words(records) if state == "infeasible" else ""
            chips_.append(
                f'<span class="sb-chip{live}" style="--c: light-dark({light}, {dark})" title="{escape(causes)}">'
                f"{count:,} {escape(state)}{escape(f': {causes}' if causes else '')}</span>"
            )
    return f'<div style="display:flex;flex-wrap:wrap;gap:.45rem">{"".join(chips_)}</div>'


def draw(
    records: Sequence[TrialRecord], spec: SearchSpec, progress: SearchProgress | None, live: bool
) -> Intent | None:
    """A bar while it runs, chips, the best so far with its buttons; the press of one as intent."""
    if live:
        share, words = search_view.standing(progress, records, spec)
        st.progress(min(share, 1.0), text=words)
    best = search_view.best(records, spec)
    intent = None
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        html.draw(chips(records))
        if best is not None:
            with st.container(horizontal=True, width="content", horizontal_alignment="right"):
                intent = buttons(best, "best", primary=True)
    if best is not None:
        html.draw(_best(best, spec))
    return intent


def _best(best: TrialRecord, spec: SearchSpec) -> str:
    """Its figures in a row; its point gets the width that is left."""
    pairs = [
        (f"{'' if i else 'best '}{objective.name}", search_view.reached(best, spec, i), "0 1 auto")
        for i, objective in enumerate(spec.objectives)
    ]
    pairs += [("at", search_view.words(best, spec), "1 1 16rem"), ("trial", str(best.number), "0 1 auto")]
    cells = "".join(
        f'<div style="flex:{flex}"><span>{escape(name)}</span><b>{escape(value)}</b></div>'
        for name, value, flex in pairs
    )
    return f'<div class="sb-facts" style="display:flex;flex-wrap:wrap">{cells}</div>'


def buttons(record: TrialRecord, key: str, *, primary: bool) -> Intent | None:
    """**Use this configuration** and **Open run**; with several seeds the latter is a menu."""
    intent: Intent | None = None
    if st.button(
        "Use this configuration",
        key=f"{key}-use",
        type="primary" if primary else "secondary",
        icon=":material/input:",
        help="Adds it to the notebook as an experiment.",
    ):
        intent = ("use", record.number)
    if len(record.runs) == 1:
        if st.button("Open run", key=f"{key}-open"):
            intent = ("open", next(iter(record.runs.values())))
    elif record.runs:
        names = {f"seed {seed}": run_id for seed, run_id in sorted(record.runs.items())}
        if chosen := st.menu_button("Open run", list(names), key=f"{key}-open"):
            intent = ("open", names[chosen])
    return intent


def notes(records: Sequence[TrialRecord], spec: SearchSpec, progress: SearchProgress | None) -> None:
    """What one must know to read the figures, in one small paragraph."""
    if sentences := [*search_view.notes(spec, progress), search_view.resolution(records, spec)]:
        st.caption(" ".join(sentence(text) for text in sentences if text))
