"""The parts of a question on a page: its form and its answer. They return what the person wants, and write nothing."""

from dataclasses import replace
from html import escape
from typing import Final, Literal

import streamlit as st

from scalebook.app import state
from scalebook.app.ask import data
from scalebook.app.ask.data import AnswerView, AskPlan
from scalebook.app.shared import html
from scalebook.app.shared.widgets import CELL_MENU, CellIntent, choose_better, number_box, press_button
from scalebook.app.shared.words import plural, sentence
from scalebook.training.asking import Findings, Preview, all_recipes, recipe_named, table
from scalebook.training.base import Problem, duration, roughly
from scalebook.training.notebook import AnswerCell, answer_body

BUDGET: Final = (
    "Time allowed for answering, such as 15m or 1h30m. With more time, more variants are compared, with narrower "
    "intervals."
)
TARGET: Final = (
    "Experiments are compared by the samples and time that they need to reach this value. If empty, the target is the "
    "value that the first experiment reaches after 60 % of its samples."
)
METRIC: Final = "You can also type another name."
NOT_A_NUMBER: Final = Problem(
    "wrong-type", "target", "is not a number", "Enter a number, such as 0.3, or leave it empty."
)
START: Final = "ask-start"
LABELS: Final = {"against": "Compared with", "experiment": "Experiment", "metric": "Metric", "target": "Target",
                 "budget": "Budget", "learning_rate": "Learning rate"}  # fmt: skip


def ask_form(plan: AskPlan) -> tuple[AnswerCell, list[Problem]]:
    """Draw the form of a question; returns it as the form has it, and the problems of single fields."""
    key, cell = f"ask-{plan.stored.path.name}-{plan.cell.name}", plan.cell
    if cell.name:
        st.markdown(recipe_named(cell.question).question)
    else:
        recipes = all_recipes()
        question = st.radio(
            "Question", list(recipes), format_func=lambda name: recipes[name].question, key=f"{key}-question",
            label_visibility="collapsed",
        )  # fmt: skip
        about, against = _experiments(plan, key, recipes[question].needs_against)
        cell = replace(cell, question=question, experiment=about, against=against)
    wrong: list[Problem] = []
    recipe, columns = recipe_named(cell.question), st.columns(3)
    if not plan.begun:
        with columns[0]:
            cell = _metric(plan, cell, key)
        with columns[1]:
            if recipe.figure != "best":
                target = number_box("Target", cell.target, f"{key}-target", empty="chosen automatically", hint=TARGET)
                wrong += [NOT_A_NUMBER] if isinstance(target, str) else []
                cell = replace(cell, target=None if target is None or isinstance(target, str) else float(target))
    with columns[2]:
        text = st.text_input("Budget", answer_body.budget_text(cell.budget_s), key=f"{key}-budget", help=BUDGET)
        budget = data.read_budget(text)
        wrong += [budget] if isinstance(budget, Problem) else []
        cell = cell if isinstance(budget, Problem) else replace(cell, budget_s=budget)
    return cell, wrong


def _experiments(plan: AskPlan, key: str, needs_against: bool) -> tuple[str, str | None]:
    """The experiment, and the other one of a question about two."""
    names, chosen = plan.experiments, plan.cell.experiment
    left, right = st.columns(2)
    with left:
        name = st.selectbox("Experiment", names, names.index(chosen), key=f"{key}-experiment")
    if not needs_against:
        return name, None
    with right:
        others = [other for other in names if other != name]
        against = st.selectbox(
            "Compared with", others, 0 if others else None, key=f"{key}-against", placeholder="No other experiment"
        )
    return name, against


def _metric(plan: AskPlan, cell: AnswerCell, key: str) -> AnswerCell:
    """The cell with the chosen metric: "" for the main one, unless its direction is a guess that was turned."""
    offered = plan.metrics.get(cell.experiment, ())
    recorded = plan.main.get(cell.experiment, "")
    main = f"main metric ({recorded})" if recorded in offered[:-1] else "main metric"
    options = [main, *dict.fromkeys([*offered, *([cell.metric] if cell.metric else [])])]
    place = options.index(cell.metric) if cell.metric else 0
    picked = st.selectbox("Metric", options, place, key=f"{key}-metric-{cell.experiment}", accept_new_options=True,
                          help=METRIC)  # fmt: skip
    metric = "" if picked in (None, main) else picked.strip()
    cell = replace(cell, metric=metric, goal=cell.goal if metric == cell.metric else None)
    named = metric or recorded
    direction = plan.better(cell, named) if named else None
    if direction is None or not (direction.guessed or cell.goal):
        return cell
    chosen = choose_better(direction, cell.goal, f"{key}-better-{named}")
    if chosen.source != "said":
        return cell
    return replace(cell, metric=named, goal="min" if chosen.lower else "max")


def ask_buttons(
    previewed: Preview | Problem, goes_on: str, wrong: list[Problem], stamp: str
) -> Literal["start", "cancel"] | None:
    """Draw what will be done, or what is wrong, and the buttons. `goes_on`: the cell that asks the same, "" if none
    does. `stamp` as in `state.Clicks`."""
    problems = wrong or ([previewed] if isinstance(previewed, Problem) else [])
    for problem in problems:
        st.error(
            f"**{LABELS.get(problem.key, problem.key)}** {problem.message}. {problem.fix}", icon=":material/error:"
        )
    if isinstance(previewed, Preview) and not wrong:
        with st.container(border=True, key="ask-preview"):
            html.draw(f'<div class="sb-card"><b>What will be done</b></div>{escape(sentence(previewed.plan))}')
            for words in previewed.left_out:
                st.caption(words)
            where = f"{goes_on} already asks this question, so starting here continues {goes_on}. " if goes_on else ""
            st.caption(
                f"{where}Asking adds ordinary cells to the notebook. You can stop at any time and continue later."
            )
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Cancel", key="ask-cancel"):
            return "cancel"
        if press_button("Start", START, stamp, type="primary", icon=":material/play_arrow:", disabled=bool(problems)):
            if not problems:
                return "start"
            state.clicks().mark_handled(START, done=False)  # clicked before the page had heard of what is wrong
    return None


AnswerIntent = Literal["stop", "continue", "seeds", "edit", "how"] | CellIntent
CHIPS: Final = {
    "working": "running", "answered": "supported", "not resolved": "not-resolved", "not begun": "new",
    "budget spent": "stopped",
}  # fmt: skip
"""The look of each state that has none of its own."""


def answer_head(view: AnswerView, page: str) -> AnswerIntent | None:
    """Draw the name, the state and the buttons of an answer; returns the clicked one. `page` identifies this state of
    the notebook."""
    name, now = view.cell.name, f"{page} {view.works} {view.spent_s:.0f}"
    intent: AnswerIntent | None = None
    title, buttons = st.columns([3, 2], vertical_alignment="center")
    with title:
        chip = html.chip(CHIPS.get(view.state, view.state), view.state)
        html.draw(html.name(name, chip))
    with buttons, st.container(horizontal=True, horizontal_alignment="right", gap="small"):
        if view.works and press_button("Stop", f"stop-{name}", page, icon=":material/stop:",
                                       help="Keeps the results so far. To resume, press Continue."):  # fmt: skip
            intent = "stop"
        if view.unfinished:
            until = view.more_budget_s
            longer = f" for {roughly(until - view.spent_s)} more" if until else ""
            label = "Start" if view.state == "not begun" else f"Continue{longer}"
            hint = f"The budget has been used up. To raise it to {roughly(until)}, press Continue." if until else None
            if press_button(label, f"continue-{name}", now, icon=":material/play_arrow:", help=hint):
                intent = "continue"
        if view.added > 0:
            took = view.findings.more_s if view.findings else None
            label = f"Add {plural(view.added, 'seed')}" + (f" (about {roughly(took)})" if took else "")
            if press_button(label, f"seeds-{name}", now, icon=":material/add:",
                            help=(
                                "Each side gets this number of additional seeds, which would probably resolve the "
                                "question."
                            )):  # fmt: skip
                intent = "seeds"
        if press_button("Edit", f"edit-{name}", type="tertiary", disabled=view.works or view.problem is not None):
            intent = "edit"
        picked = st.menu_button("More", list(CELL_MENU), key=f"more-{name}", type="tertiary",
                                icon=":material/more_horiz:")  # fmt: skip
    return CELL_MENU[picked] if picked else intent


def answer_words(view: AnswerView) -> None:
    """Draw the question, the answer in one sentence, and what it is about."""
    question = view.findings.question if view.findings else view.cell.question
    headline = f'<div class="sb-headline">{escape(view.findings.headline)}</div>' if view.findings else ""
    html.draw(
        f'<div class="sb-question">{escape(question)}</div>{headline}'
        f'<div class="sb-summary">{escape(data.facts(view))}</div>'
    )
    if view.problem is not None:
        st.error(str(view.problem), icon=":material/error:")


def answer_progress(view: AnswerView) -> None:
    """Draw what is done now and how far it is, or why it ended without an answer."""
    progress = view.progress
    if view.works:
        whole_s = view.spent_s + view.left_s if view.left_s else view.cell.budget_s
        share = min(1.0, view.spent_s / whole_s)
        words = progress.words if progress and progress.words else "starting"
        left = f" · about {roughly(view.left_s)} left" if view.left_s else ""
        spent_words = roughly(view.spent_s) if view.spent_s < 60 else duration(view.spent_s)
        spent = f"{spent_words} of {roughly(view.cell.budget_s)}"
        st.progress(share, text=f"{words} · {spent}{left}")
    elif view.failure is not None:
        failure = view.failure
        st.error(f"**{sentence(f'{failure.key} {failure.message}')}** {failure.fix}", icon=":material/error:")


def answer_remarks(view: AnswerView) -> None:
    """Draw what was planned, and what the budget leaves out."""
    progress = view.progress
    remarks = [f"Plan: {progress.plan}.", *dict.fromkeys(progress.left_out)] if progress and progress.plan else []
    if remarks:
        html.draw("".join(f'<div class="sb-remark">{escape(words)}</div>' for words in remarks))


def answer_table(findings: Findings) -> None:
    head, *rows = table(findings)
    verdict = len(head) - 1

    def drawn(place: int, cell: str) -> html.Cell:
        if place == verdict and findings.state == "under way":
            return html.text("")
        if place == verdict:
            return (
                html.Cell(html.chip(cell.replace(" ", "-"), cell)) if cell and cell != "baseline" else html.text(cell)
            )
        if place in (0, verdict - 1):
            return html.text(cell)
        return html.number("" if cell == "-" else cell)

    cells = [[drawn(place, cell) for place, cell in enumerate(row)] for row in rows]
    html.draw(html.table(head, cells, numeric=range(1, verdict - 1), label="Sides"))


def answer_sentences(findings: Findings) -> None:
    lines = "".join(f"<li>{escape(line)}</li>" for line in findings.sentences)
    if lines:
        html.draw(f'<ul class="sb-sentences">{lines}</ul>')


def answer_how(words: str, name: str, is_shown: bool) -> bool:
    """Draw the line that shows or hides the cells which answer the question; returns whether it was clicked."""
    icon = ":material/expand_less:" if is_shown else ":material/expand_more:"
    return press_button(
        f"How the question was answered: {words}", f"how-{name}", str(is_shown), type="tertiary", icon=icon
    )


def delete_form(how: str) -> bool:
    """Draw the choice whether the cells which answer a question are deleted with it."""
    return bool(how) and st.checkbox(
        f"Also delete the cells that answer the question: {how}", value=True, key="delete-how"
    )
