"""A question in a notebook: the dialog that asks it, and the cell with its answer, which redraws while it works."""

from functools import partial
from html import escape
from typing import NoReturn

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.ask import data, ratio_chart, widgets
from scalebook.app.ask.data import AnswerView, AskPlan
from scalebook.app.shared import charts, dialogs, html, notes, style
from scalebook.app.shared.dialogs import in_conflict, write
from scalebook.app.shared.widgets import press_button
from scalebook.training.asking import Findings, answer_bars
from scalebook.training.notebook import AnswerCell, Notebook, Stored

EVERY_S = 1.0
DELETE = "delete-answer"


def ask_question(stored: Stored, experiment: str = "") -> NoReturn:
    """Open the dialog for a new question about `experiment`, or the notebook's first one."""
    reader = resources.notebook_runs(stored.path.name)
    runs = reader.runs(notebook=stored.path.name)
    plan = data.new_question(resources.workspace(), stored, resources.description(), reader, runs, experiment)
    dialogs.ask("Ask a question", partial(_draw_dialog, plan), "large")


def _draw_dialog(plan: AskPlan) -> None:
    cell, wrong = widgets.ask_form(plan)
    previewed = plan.preview(cell, resources.description())
    intent = widgets.ask_buttons(previewed, plan.goes_on(cell), wrong, f"{plan.stored.path} {plan.stored.stamp} {cell}")
    if intent == "start":
        done = _start(plan, cell)
        state.clicks().mark_handled(widgets.START, done=done)
        if not done and not in_conflict():
            return  # it has been said why; what was chosen stays
    if intent is not None:
        dialogs.close()
        st.rerun()


def _start(plan: AskPlan, cell: AnswerCell) -> bool:
    """Write the question's cell and start a process for it; False where that was not written."""
    written: list[AnswerCell] = []

    def change(notebook: Notebook) -> Notebook:
        changed, put = plan.put(notebook, cell)
        written.append(put)
        return changed

    stored = write(plan.stored, change, toast="")
    if stored is None:
        return False
    _work(stored, written[-1])
    return True


def _work(stored: Stored, cell: AnswerCell) -> None:
    data.folder_of(resources.workspace(), stored, cell).start(stored.path)
    state.show_message(f"Started {cell.name}.", ":material/play_arrow:")


def shows_how(stored: Stored, cell: AnswerCell) -> bool:
    """Whether the cells that answer this question are shown; they are folded at first."""
    return bool(state.recall(_how_key(stored, cell), False))


def _how_key(stored: Stored, cell: AnswerCell) -> str:
    return f"how-{stored.path.name}-{cell.name}"


def folded(stored: Stored, wanted: str) -> set[str]:
    """The names of the cells that are not shown, as they answer a question whose cells are folded. `wanted`: the cell
    that the page's address names, which is shown."""
    names: set[str] = set()
    for cell in stored.notebook.answers():
        if wanted in cell.own and state.just_entered():
            state.remember(_how_key(stored, cell), True)
        if not shows_how(stored, cell):
            names |= {*cell.own} - {cell.experiment, cell.against}
    return names


def show_answer(stored: Stored, index: int, cell: AnswerCell) -> bool:
    """Draw the card of an answer; redraws every second while a process works on it, and reruns the page when that ends.

    Returns whether one works.
    """
    working = data.folder_of(resources.workspace(), stored, cell).works()
    with st.container(border=True, key=f"cell-answer-{cell.name}"):
        st.fragment(_card, run_every=EVERY_S if working else None)(stored, index, cell, working)
    return working


def _card(stored: Stored, index: int, cell: AnswerCell, was_working: bool) -> None:
    findings = resources.answer(stored, cell, was_working)
    view = data.view(resources.workspace(), stored, cell, findings)
    if was_working and not view.works:
        st.rerun()  # the page stops looking every second
    intent = widgets.answer_head(view, stored.stamp)
    widgets.answer_words(view)
    widgets.answer_progress(view)
    if view.findings is not None and view.findings.rows:
        _show_findings(cell, view.findings)
    widgets.answer_remarks(view)
    how = data.how(stored.notebook, cell)
    if how and widgets.answer_how(how, cell.name, shows_how(stored, cell)):
        intent = "how"
    if intent is not None:
        _act(intent, stored, index, view)


def _show_findings(cell: AnswerCell, findings: Findings) -> None:
    chart = resources.cached_figure(ratio_chart.ratios, findings, style.dark())
    if chart is not None:
        html.draw(ratio_chart.legend(findings, cell.goal))
        charts.draw(chart, f"ratios-{cell.name}", answer_bars.spoken(findings))
    widgets.answer_table(findings)
    widgets.answer_sentences(findings)


def _act(intent: widgets.AnswerIntent, stored: Stored, index: int, view: AnswerView) -> None:
    cell, clicked, done = view.cell, f"{intent}-{view.cell.name}", True
    if intent == "stop":
        data.folder_of(resources.workspace(), stored, cell).stop()
        state.show_message(f"Asked {cell.name} to stop.", ":material/stop:")
    elif intent == "continue":
        done = _continue(stored, view)
    elif intent == "seeds":
        changed = write(stored, view.with_more_seeds, toast="")
        done = changed is not None
        if changed is not None:
            _work(changed, cell)
    elif intent == "how":
        state.remember(_how_key(stored, cell), not shows_how(stored, cell))
    elif intent == "edit":
        state.clicks().mark_handled(clicked, done=False)
        _edit(stored, cell)
    elif intent == "delete":
        dialogs.ask("Delete this answer?", partial(_delete, stored, cell))
    else:
        notes.place(intent, stored, index)
    state.clicks().mark_handled(clicked, done=done)
    st.rerun()


def _edit(stored: Stored, cell: AnswerCell) -> NoReturn:
    reader = resources.notebook_runs(stored.path.name)
    runs = reader.runs(notebook=stored.path.name)
    plan = data.question_of(resources.workspace(), stored, cell, resources.description(), reader, runs)
    dialogs.ask(f"Edit {cell.name}", partial(_draw_dialog, plan), "large")


def _continue(stored: Stored, view: AnswerView) -> bool:
    """Go on where it was, with a larger budget where that is spent."""
    budget_s = view.more_budget_s
    if budget_s is not None:
        changed = write(stored, lambda notebook: view.with_budget(notebook, budget_s), toast="")
        if changed is None:
            return False
        stored = changed
    _work(stored, view.cell)
    return True


def _delete(stored: Stored, cell: AnswerCell) -> None:
    html.draw(f"This removes <b>{escape(cell.name)}</b> from the notebook.")
    with_cells = widgets.delete_form(data.how(stored.notebook, cell))
    st.markdown("The runs are kept. To restore the cells, use **Undo** above the notebook.")
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Cancel", key="keep-answer"):
            dialogs.close()
            st.rerun()
        if press_button("Delete", DELETE, stored.stamp, type="primary"):
            folder = data.folder_of(resources.workspace(), stored, cell)
            folder.stop()
            done = write(
                stored, lambda notebook: data.without(notebook, cell, with_cells), "Deleted. Undo restores it."
            )
            state.clicks().mark_handled(DELETE)
            if done is not None:
                folder.forget()
            dialogs.close()
            st.rerun()
