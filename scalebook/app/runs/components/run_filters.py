"""What the list of runs shows: which runs, in which order, with which columns. All of it stands in the address."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import streamlit as st

from scalebook.app.runs.services import run_query
from scalebook.app.runs.services.run_query import FACETS, RunQuery
from scalebook.training.tracking.reading import RunRecord

ANY: Final = "any state"
NO_GROUP: Final = "none"
LABELS: Final = {
    "notebook": "Notebook", "model": "Model", "strategy": "Strategy", "batch": "Batch per worker",
    "rate": "Learning rate",
}  # fmt: skip
PARAMETERS: Final = ("find", "state", *LABELS, "tag", "trials", "tests", "group", "columns", "sort", "down")


@dataclass(frozen=True)
class ListView:
    """What is shown, and how."""

    query: RunQuery
    group: str
    """A facet, "" for single runs."""
    columns: Sequence[str]
    """Metrics that have a column of their own."""

    def said(self) -> str:
        """What narrows it, in words; "" where nothing does."""
        chosen = {**self.query.facets, "tag": self.query.tags, "name": [self.query.find] if self.query.find else []}
        return ", ".join(f"{facet} {' or '.join(values)}" for facet, values in chosen.items() if values)


def draw(records: Sequence[RunRecord], states: Sequence[str], asked: Mapping[str, Sequence[str]]) -> ListView:
    """The widgets; `asked` is what the address says, which may be of runs that are not there any more."""
    with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="bottom"):
        find = st.text_input("Find", key="find", placeholder="Name, note or tag", bind="query-params", width=230,
                             label_visibility="collapsed", icon=":material/search:")  # fmt: skip
        state = st.selectbox(
            "State", [ANY, *states], key="state", bind="query-params", label_visibility="collapsed", width=140
        )
        with st.popover("Filter", icon=":material/filter_alt:"):
            facets = {facet: _several(label, facet, records, asked) for facet, label in LABELS.items()}
            known = sorted({tag for record in records for tag in run_query.tags(record)} | {*asked.get("tag", ())})
            tags = st.multiselect("Tags", known, key="tag", bind="query-params", placeholder="any")
            trials = st.toggle("Show trials of searches", key="trials", bind="query-params")
            tests = st.toggle("Show measurements and tests", key="tests", bind="query-params",
                              help="Runs that Plan, learning-rate tests and largest-batch tests made.")  # fmt: skip
        with st.popover("Columns", icon=":material/view_column:"):
            metrics = sorted({*run_query.metrics(records), *asked.get("columns", ())})
            columns = st.multiselect("Metrics", metrics, key="columns", bind="query-params", placeholder="none")
            group = st.selectbox("Group by", [NO_GROUP, *FACETS], key="group", bind="query-params")
            orders = [*run_query.ORDERS, *metrics]
            sort = st.selectbox(
                "Sort by", orders, key="sort", bind="query-params", help="Metrics sort by their last value."
            )
            down = st.toggle("Largest or newest first", value=True, key="down", bind="query-params")
    if state and state != ANY:
        facets["state"] = [state]
    query = RunQuery(find or "", facets, tags, trials, sort or "started", down, tests)
    return ListView(query, "" if group in (None, NO_GROUP) else str(group), columns)


def _several(label: str, facet: str, records: Sequence[RunRecord], asked: Mapping[str, Sequence[str]]) -> list[str]:
    values = list(dict.fromkeys([*run_query.options(records, facet), *asked.get(facet, ())]))
    return st.multiselect(label, values, key=facet, bind="query-params", placeholder="any")
