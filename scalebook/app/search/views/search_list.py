"""All searches of the workspace, the newest first; the living ones move."""

from html import escape

import streamlit as st

from scalebook.app import resources
from scalebook.app.navigation import NOTEBOOK, SEARCH
from scalebook.app.search.services import searches
from scalebook.app.search.services.searches import SearchView
from scalebook.app.shared.components import broken, html, page_head
from scalebook.app.shared.services import notebooks
from scalebook.app.shared.services.words import ago

EVERY_S = 2.0
MOST = 100
HEAD = ("Search", "Notebook", "State", "Trials", "", "Best", "Objective", "Started")


def show() -> None:
    """Heading, New search, table."""
    title, buttons = st.columns([1, 1], vertical_alignment="bottom")
    with title:
        page_head.title("Searches")
    choice = notebooks.pick(resources.workspace(), None)
    with buttons, st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("New search", type="primary", icon=":material/add:", disabled=choice is None) and choice:
            st.switch_page(SEARCH.script, query_params={"notebook": choice.name})
    broken.draw(resources.broken_records())
    found = searches.views(resources.workspace(), MOST)
    if not found:
        html.empty("No search yet", "Press New search, or Search on an experiment: it tries many batch sizes and "
                   "learning rates, and shows which region works.")  # fmt: skip
        return
    live = any(one.live for one in found)
    st.fragment(_table, run_every=EVERY_S if live else None)(found if not live else None)


def _table(found: list[SearchView] | None) -> None:
    if found is None:
        found = searches.views(resources.workspace(), MOST)
        if not any(one.live for one in found):
            st.rerun()
    html.draw(html.table(HEAD, [_row(one) for one in found], numeric=(3, 5)))
    if len(found) == MOST:
        st.caption(f"The newest {MOST}. Older ones are in the notebooks and in MLflow.")


def _row(one: SearchView) -> list[html.Cell]:
    notebook = (one.request.notebook or "").removesuffix(".md")
    bar = f'<div class="sb-bar"><i class="sb-{escape(one.state)}" style="width:{one.fraction:.1%}"></i></div>'
    return [
        html.link(one.name, SEARCH.url(search=one.id)),
        html.link(notebook, NOTEBOOK.url(notebook=notebook)) if notebook else html.text("–", "dim"),
        html.Cell(html.chip(one.state)),
        html.number(f"{one.done:,} / {one.trials:,}"),
        html.Cell(bar),
        html.number(one.best),
        html.text(one.objective, "dim"),
        html.text(ago(one.request.created), "dim"),
    ]
