"""Comparisons and claims as cells of a notebook, and the dialogs in which they are edited."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from types import MappingProxyType
from typing import NoReturn

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.compare import data, widgets
from scalebook.app.compare.data import ClaimDraft, ClaimPlan, ComparisonDraft, ComparisonPlan
from scalebook.app.navigation import COMPARE, NOTEBOOK
from scalebook.app.shared import dialogs, drafts, html, links, notebooks, notes
from scalebook.app.shared.dialogs import in_conflict, write
from scalebook.app.shared.what_it_logs import what_it_logs
from scalebook.app.shared.widgets import cell_menu, draft_label, draft_line, number_text, press_button, turn_better
from scalebook.training.jobs import this_machine
from scalebook.training.notebook import ClaimCell, Comparison, ComparisonCell, Stored, compare, edit, record_figures
from scalebook.training.notebook.claims import Judgement, needs_curve
from scalebook.training.tracking import RunReader, RunRecord


def ask_comparison(fresh: Sequence[ComparisonPlan], *, leads_there: bool = False) -> NoReturn:
    """Open the dialog for a comparison. Cancel discards it; closing the dialog in another way keeps a draft. `fresh`
    holds one plan for each notebook to choose from. `leads_there`: Save opens the notebook.
    """
    _opened_plan([data.resumed(resources.workspace(), plan) for plan in fresh], fresh, leads_there)


def recorded_runs(stored: Stored) -> list[RunRecord]:
    """The newest runs of the notebook; their tags say what they log."""
    return resources.notebook_runs(stored.path.name).runs(notebook=stored.path.name)


def _opened_plan(begun: Sequence[ComparisonPlan], fresh: Sequence[ComparisonPlan], leads_there: bool) -> NoReturn:
    """Open the dialog with the plans `begun`, which are those of `fresh` or drafts of them."""
    title = "Edit comparison" if begun[0].editing else "New comparison"
    dialogs.ask(title, partial(_draw_dialog, begun, fresh, leads_there), "large")


def show_left(stored: Stored) -> None:
    """Draw the unsaved drafts of comparisons in this notebook; nothing while a dialog is open."""
    if dialogs.is_open():
        return
    workspace = resources.workspace()
    for i, left in enumerate(drafts.of_notebook(workspace, ComparisonDraft, stored.path.stem)):
        draft = left.draft
        cell = data.cell_of(draft, stored.notebook)
        what = f"the comparison {draft.editing}" if cell else "a new comparison"
        words = f"{draft.cell.name}: {', '.join(draft.cell.runs)}"
        choice = draft_label(left.written_s, what, key=f"comparison-{i}", text=words)
        if choice == "continue":
            description = resources.description()
            runs = recorded_runs(stored)
            fresh = (
                data.comparison_of(stored, cell, description, runs)
                if cell
                else data.new_comparison(stored, description, index=draft.at, recorded=runs)
            )
            _opened_plan([data.continued(fresh, left)], [fresh], leads_there=False)
        elif choice == "discard":
            drafts.discard(workspace, ComparisonDraft, draft.notebook, draft.which)
            st.rerun()
    _show_left_claims(stored)


def _show_left_claims(stored: Stored) -> None:
    """Draw the unsaved drafts of claims in this notebook."""
    workspace = resources.workspace()
    for i, (draft, left_at) in enumerate(drafts.of_notebook(workspace, ClaimDraft, stored.path.stem)):
        cell = next((claim for claim in stored.notebook.claims() if claim.name == draft.editing), None)
        what = f"the claim {draft.editing}" if cell else "a new claim"
        choice = draft_label(left_at, what, key=f"claim-{i}", text=draft.text or f"{draft.name}: {draft.values}")
        if choice == "continue" and cell is not None:
            ask_edit_claim(stored, stored.notebook.cells.index(cell), cell)
        elif choice == "continue":
            ask_claim(stored)
        elif choice == "discard":
            drafts.discard(workspace, ClaimDraft, draft.notebook, draft.which)
            st.rerun()


def _draw_dialog(begun: Sequence[ComparisonPlan], fresh: Sequence[ComparisonPlan], leads_there: bool) -> None:
    which, workspace = 0, resources.workspace()
    if len(begun) > 1:
        which = st.selectbox(
            "Notebook", range(len(begun)), format_func=lambda i: begun[i].stored.notebook.title, key="comparison-in"
        )
    plan = begun[which]
    if plan.left_at is not None and draft_label(plan.left_at, "this comparison", key="comparison") == "discard":
        data.discard_draft(workspace, plan)
        _opened_plan([fresh[which] if i == which else other for i, other in enumerate(begun)], fresh, leads_there)
    if leads_there:
        st.caption(f"Adds a cell to **{plan.stored.path.name}** that shows the newest runs of these experiments.")
    if plan.left_out:
        st.caption(f"Left out, because this notebook has no such experiment: {', '.join(plan.left_out)}.")
    description = resources.description()
    experiments = [cell for cell in plan.stored.notebook.experiments() if cell.name in plan.cell.runs]
    chosen = {cell.name: cell.experiment(description) for cell in experiments}
    seen = what_it_logs(chosen, recorded_runs(plan.stored), "comparison")
    plan = replace(plan, metrics=list(dict.fromkeys([*plan.metrics, *seen])))
    now, wrong = widgets.comparison_form(plan)
    data.save_draft(workspace, plan, now)
    intent = widgets.comparison_buttons(wrong, f"{plan.stored.path} {plan.stored.stamp}")
    if intent == "save":
        done = write(plan.stored, lambda notebook: plan.put(notebook, now), f"Saved {now.name}.",
                     decided=partial(data.discard_draft, workspace, plan))  # fmt: skip
        state.clicks().mark_handled(widgets.SAVE, done=done is not None)
        if done is None and not in_conflict():
            return  # it has been said why; what was chosen stays
        dialogs.close()
        if done is not None:
            data.discard_draft(workspace, plan)
        if done is not None and leads_there:
            st.switch_page(NOTEBOOK.script, query_params={"notebook": plan.stored.path.stem})
    elif intent == "cancel":
        data.discard_draft(workspace, plan)
    if intent is not None:
        dialogs.close()
        st.rerun()


EVERY_S = 2.0
LIVE = ("running", "waiting")


def show_comparison(stored: Stored, index: int, cell: ComparisonCell, reader: RunReader) -> None:
    """Draw the card of a comparison: chart and table. Redraws every other second while one of its runs waits or runs.
    `reader` serves this drawing of the page alone."""
    compared = _compare(stored, cell, reader, resources.judgements(stored))
    live = any(row.outcome in LIVE for row in compared.rows)
    problem = "" if live else record_figures(resources.reader(), compared)
    with st.container(border=True, key=f"cell-comparison-{cell.name}"):
        _head(stored, index, cell, compared)
        st.fragment(_comparison_body, run_every=EVERY_S if live else None)(stored, cell, None if live else compared)
        if problem:
            st.caption(f"MLflow has not recorded these figures: {problem}")


def _compare(
    stored: Stored, cell: ComparisonCell, reader: RunReader, judged: Mapping[str, Judgement] = MappingProxyType({})
) -> Comparison:
    return compare(reader, stored.path.name, stored.notebook, cell, resources.description(), judged=judged)


def _head(stored: Stored, index: int, cell: ComparisonCell, compared: Comparison) -> None:
    runs = [run for row in compared.rows for run in row.run_ids]
    title, buttons = st.columns([3, 2], vertical_alignment="center")
    with title:
        html.draw(html.name(cell.name, f'<span class="sb-dim">{escape(compared.metric)}</span>'))
    with buttons, st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center", gap="small"):
        if runs:
            st.page_link(COMPARE.script, label="Run by run", query_params=_run_by_run(cell, compared.metric, runs))
        address = resources.mlflow_address()
        if address and runs:
            experiments = [resources.reader().run(run).experiment_id for run in runs]
            st.link_button(
                "Open in MLflow", links.compare(address, runs, experiments), type="tertiary", key=f"mlflow-{cell.name}"
            )
        if press_button("Edit", f"edit-{cell.name}", type="tertiary"):
            state.clicks().mark_handled(f"edit-{cell.name}", done=False)
            ask_comparison([data.comparison_of(stored, cell, resources.description(), recorded_runs(stored))])
        intent = cell_menu(cell.name)
    if intent == "delete":
        dialogs.confirm_delete(stored, index, "comparison", cell.name, "Its runs stay.")
    if intent is not None:
        notes.place(intent, stored, index)
        st.rerun()


def _run_by_run(cell: ComparisonCell, metric: str, runs: list[str]) -> dict[str, str]:
    """Query parameters of the Compare page with the same runs, metric, target and axes."""
    parameters = {"runs": ",".join(runs), "metric": metric}
    if cell.x:
        parameters["x"] = cell.x[0]
    if cell.target is not None:
        parameters["target"] = number_text(cell.target)
    if cell.scale == "log":
        parameters["log"] = "true"
    return parameters


def _comparison_body(stored: Stored, cell: ComparisonCell, compared: Comparison | None) -> None:
    compared = compared or _compare(stored, cell, resources.reader())
    axis = compared.axes[0]
    if len(compared.axes) > 1:
        axis = st.segmented_control(
            "X axis", compared.axes, default=axis, required=True, key=f"x-{cell.name}", label_visibility="collapsed"
        )
    widgets.comparison_curves(compared, axis, log_y=cell.scale == "log", key=f"comparison-{cell.name}", height=340)
    widgets.comparison_table(compared)
    key = f"better-{cell.name}"
    if goal := turn_better(compared.metric, compared.direction, key, stored.stamp):
        done = write(stored, lambda notebook: edit.say_better(notebook, cell, compared.metric, goal))
        state.clicks().mark_handled(key, done=done is not None)
        st.rerun()
    widgets.why(compared)
    if compared.differences:
        with st.expander("Config differences"):
            widgets.differences(compared.differences, [row.experiment for row in compared.rows])


def show_claim(
    stored: Stored, index: int, cell: ClaimCell, run_new: Callable[[Stored, Collection[str]], NoReturn]
) -> None:
    """Draw the card of a claim: its computed verdict, and its YAML, which can be edited. `run_new` runs the seeds that
    these experiments lack."""
    judgement = resources.judgement(stored, cell)
    with st.container(border=True, key=f"cell-claim-{cell.name}"):
        left, right = st.columns([3, 2], vertical_alignment="center")
        with left:
            html.draw(widgets.claim_title(judgement))
        with (
            right,
            st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center", gap="small"),
        ):
            if press_button("Edit", f"edit-{cell.name}", type="tertiary"):
                state.clicks().mark_handled(f"edit-{cell.name}", done=False)
                state.pop(SAVE_CLICKED, False)
                ask_edit_claim(stored, index, cell)
            intent = cell_menu(cell.name)
        if intent == "delete":
            dialogs.confirm_delete(stored, index, "claim", cell.name, "Its runs stay.")
        if intent is not None:
            notes.place(intent, stored, index)
            st.rerun()
        widgets.draw_claim(judgement)
        cores = len(this_machine().cores)
        more = data.more_seeds(stored.notebook, judgement, resources.description(), resources.reader(), cores)
        if more is not None and widgets.more_seeds_button(more, cell.name, stored.stamp):
            done = write(stored, more.put, "")
            state.clicks().mark_handled(f"add-seeds-{cell.name}", done=done is not None)
            if done is not None:
                run_new(done, more.added)
            st.rerun()
        for metric in dict.fromkeys(plain.metric for plain in judgement.cell.plain if needs_curve(plain)):
            _better(stored, cell, judgement, metric)


def _better(stored: Stored, cell: ClaimCell, judgement: Judgement, metric: str) -> None:
    key = f"better-{cell.name}-{metric}" if cell.ratios else f"better-{cell.name}"
    if goal := turn_better(metric, judgement.directions[metric], key, stored.stamp):
        done = write(stored, lambda notebook: edit.say_better(notebook, judgement.cell, metric, goal))
        state.clicks().mark_handled(key, done=done is not None)
        st.rerun()


SAVE_CLICKED = "claim-save-clicked"


def ask_claim(stored: Stored) -> NoReturn:
    """Open the dialog for a new claim."""
    plan = data.new_claim(stored, resources.description(), recorded_runs(stored))
    state.pop(SAVE_CLICKED, False)
    left = data.left_claim(resources.workspace(), stored, "", as_text=False)
    draw = partial(_form, data.continued_claim(plan, left), left_at=left.written_s if left else None)
    dialogs.ask("New claim", draw, "large")


def ask_edit_claim(stored: Stored, index: int, cell: ClaimCell) -> NoReturn:
    """Open the dialog for a claim of the notebook, with what was typed and not saved."""
    plan = data.claim_of(stored, cell, resources.description(), recorded_runs(stored))
    form, text = (
        data.left_claim(resources.workspace(), stored, cell.name, as_text=as_text) for as_text in (False, True)
    )
    begun = notebooks.as_begun(stored, cell.name, text.draft.before) if text else stored
    left = text or form
    draw = partial(
        _edit, data.continued_claim(plan, form), begun, index, text.draft.text if text else cell.source,
        left_at=left.written_s if left else None, as_text=text is not None,
    )  # fmt: skip
    dialogs.ask(f"Edit {cell.name}", draw, "large")


def _edit(plan: ClaimPlan, stored: Stored, index: int, text: str, *, left_at: float | None, as_text: bool) -> None:
    """Edit the claim as a form or as `text`; each tab keeps what was typed while the other is open. `left_at`: when a
    draft was saved, if the dialog begins with one."""
    if left_at is not None:
        draft_line(left_at, "this claim")
    tabs = st.tabs(["Form", "YAML"], default="YAML" if as_text else "Form")
    with tabs[0]:
        _form(plan)
    with tabs[1]:
        _text(stored, index, plan.editing, text)


def _form(plan: ClaimPlan, left_at: float | None = None) -> None:
    stored, description = plan.stored, resources.description()
    if left_at is not None:
        draft_line(left_at, "this claim")
    experiments = {cell.name: cell.experiment(description) for cell in stored.notebook.experiments()}
    seen = what_it_logs(experiments, recorded_runs(stored), f"claim-{plan.editing}")
    plan = replace(plan, metrics=list(dict.fromkeys([*plan.metrics, *seen])))
    name, values, errors = widgets.claim_form(
        plan,
        lambda values, name: plan.problems(values, name, description),
        save_clicked=state.recall(SAVE_CLICKED, False),
    )
    data.save_claim_draft(resources.workspace(), data.draft_of_claim(plan, name, plan.body(values)), plan)
    discard = partial(data.discard_claim, resources.workspace(), stored, plan.editing)
    ready = all(error.code == "missing" for error in errors)
    wanted = widgets.claim_buttons(ready, f"{stored.path} {stored.stamp}")
    if wanted is None:
        return
    if wanted and errors:
        state.clicks().mark_handled(widgets.SAVE_CLAIM, done=False)
        state.remember(SAVE_CLICKED, True)
        st.rerun()
    if wanted:
        done = write(stored, lambda notebook: plan.put(notebook, name, values), f"Saved {name}.", decided=discard)
        state.clicks().mark_handled(widgets.SAVE_CLAIM, done=done is not None)
        if done is None and not in_conflict():
            return  # it has been said why; what was chosen stays
    if not in_conflict():
        discard()
    dialogs.close()
    st.rerun()


def _text(stored: Stored, index: int, name: str, begun: str) -> None:
    """Edit the claim's text, which starts as `begun`. A text that cannot be read becomes a broken cell, which can be
    edited too."""
    height = min(500, max(180, 24 * (begun.count("\n") + 2)))
    text = st.text_area("Text", begun, height=height, key=f"claim-text-{name}")
    discard = partial(data.discard_claim, resources.workspace(), stored, name)
    if text != begun:
        data.save_claim_text(resources.workspace(), stored, name, text)
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Cancel", key="claim-cancel"):
            discard()
            dialogs.close()
            st.rerun()
        if press_button(
            "Save", "claim-save", f"{stored.path} {stored.stamp}", type="primary", disabled=not text.strip()
        ):
            whole = text if text.endswith("\n") else f"{text}\n"
            done = write(stored, lambda notebook: edit.replace_source(notebook, index, whole), decided=discard)
            state.clicks().mark_handled("claim-save", done=done is not None)
            if done is not None:
                discard()
            if done is not None or in_conflict():
                dialogs.close()
                st.rerun()
