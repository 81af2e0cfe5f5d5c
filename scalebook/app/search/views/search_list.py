"""All searches of the workspace, the newest first; the living ones move."""

from collections.abc import Mapping
from html import escape

import streamlit as st

from scalebook.app import resources
from scalebook.app.navigation import NOTEBOOK, SEARCH
from scalebook.app.search.services import searches
from scalebook.app.search.services.searches import SearchView
from scalebook.app.search.views import removing
from scalebook.app.shared import html, notebooks
from scalebook.app.shared.frame import last_notebook
from scalebook.app.shared.widgets import page_title, show_broken
from scalebook.app.shared.words import ago

EVERY_S = 2.0
MOST = 100
HEAD = ("Search", "Notebook", "State", "Trials", "Progress", "Best", "Objective", "Started")


def show() -> None:
    """Heading, New search, table."""
    title, buttons = st.columns([1, 1], vertical_alignment="bottom")
    with title:
        page_title("Searches")
    choice = last_notebook(None)
    with buttons, st.container(horizontal=True, horizontal_alignment="right"):
        ended = [view for view in searches.views(resources.workspace(), MOST) if not view.live]
        if ended and st.button("Delete searches", key="delete-searches", icon=":material/delete:"):
            removing.ask(ended)
        if st.button("New search", type="primary", icon=":material/add:", disabled=choice is None) and choice:
            st.switch_page(SEARCH.script, query_params={"notebook": choice.name})
    show_broken(resources.broken_records())
    views = searches.views(resources.workspace(), MOST)
    if not views:
        html.empty("No search yet", "Press New search, or Search on an experiment, to try many batch sizes and "
                                    "learning rates and see which region works.")  # fmt: skip
        return
    live = any(view.live for view in views)
    st.fragment(_table, run_every=EVERY_S if live else None)(views if not live else None)


def _table(views: list[SearchView] | None) -> None:
    if views is None:
        views = searches.views(resources.workspace(), MOST)
        if not any(view.live for view in views):
            st.rerun()
    titles = {choice.name: choice.label for choice in notebooks.choices(resources.workspace())}
    html.draw(html.table(HEAD, [_row(view, titles) for view in views], numeric=(3, 5)))
    if len(views) == MOST:
        st.caption(f"The newest {MOST}. Notebooks and MLflow have the older ones.")


def _row(view: SearchView, titles: Mapping[str, str]) -> list[html.Cell]:
    """`titles`: of the notebooks that there are, by the file's stem."""
    notebook = (view.request.notebook or "").removesuffix(".md")
    bar = f'<div class="sb-bar"><i class="sb-{escape(view.colour)}" style="width:{view.fraction:.1%}"></i></div>'
    return [
        html.link(view.name, SEARCH.url(search=view.id)),
        html.link(titles[notebook], NOTEBOOK.url(notebook=notebook))
        if notebook in titles
        else html.text(notebook or "–", "dim"),
        html.Cell(html.chip(view.colour, view.standing)),
        html.number(f"{view.done:,} / {view.trials:,}"),
        html.Cell(bar),
        html.number(view.best),
        html.text(view.objective, "dim"),
        html.text(ago(view.request.created), "dim"),
    ]
