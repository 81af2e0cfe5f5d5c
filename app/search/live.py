"""One search, live: its state, the best trial so far, and the charts of its trials."""

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.search import learning_curves, trial_charts, trial_data, trial_map, widgets
from scalebook.app.search.widgets import TrialIntent
from scalebook.app.shared import charts, html, style
from scalebook.app.shared.words import spoken
from scalebook.training.experiments.search import SearchSpec
from scalebook.training.search import SearchFolder, SearchProgress, search_folder
from scalebook.training.search.map import landscape
from scalebook.training.search.study import TrialRecord, own_values
from scalebook.training.tracking import names, own_metrics

EVERY_S = 2.0
CHARTS_EVERY_S = 6.0
"""Charts change less often: the browser rebuilds a changed chart, which blinks."""
KEPT = "search-intent"


def show(folder: SearchFolder) -> TrialIntent | None:
    """Draw the view; returns what was clicked: ("use", number of a trial), ("open", id of a run) or None."""
    live = folder.state() not in search_folder.ENDED
    st.fragment(_head, run_every=EVERY_S if live else None)(folder, live)
    st.fragment(_charts, run_every=CHARTS_EVERY_S if live else None)(folder)
    return state.pop(KEPT, None)


def _pressed(intent: TrialIntent | None) -> None:
    """Store a click and rerun the page, whose `show` returns it: a fragment itself returns nothing to the page."""
    if intent is not None:
        state.remember(KEPT, intent)
        st.rerun()


def _picked(chart: str, records: list[TrialRecord], number: int | None) -> None:
    """Open the run of a clicked mark, with several seeds the first one. The mark stays selected, so it counts once."""
    before: int | None = state.recall(f"picked-{chart}", None)
    state.remember(f"picked-{chart}", number)
    if number == before:
        return
    record = next((record for record in records if record.number == number), None)
    if record is not None and record.runs:
        _pressed(("open", record.runs[min(record.runs)]))


def _head(folder: SearchFolder, was_live: bool) -> None:
    if was_live and folder.state() in search_folder.ENDED:
        st.rerun()
    spec, records = resources.search_spec(folder), resources.search_records(folder)
    progress = folder.progress()
    with st.container(key="live-head"):
        _drawn_head(records, spec, progress, was_live)


def _drawn_head(records: list[TrialRecord], spec: SearchSpec, reported: SearchProgress | None, was_live: bool) -> None:
    _pressed(widgets.best_trial(records, spec, reported, was_live))
    widgets.notes(records, spec, reported)
    if best := trial_data.best(records, spec):
        for name in trial_data.own_objectives(best, spec, resources.reader()):
            st.caption(f"{own_metrics.SIGN} {name}. {own_metrics.WORDS}")
        if words := trial_data.lost_words(best, resources.reader()):
            st.warning(f"Trial {best.number}: {words}", icon=":material/warning:")
    drawn = resources.cached_figure(trial_charts.progress, records, spec, style.dark())
    if drawn is not None:
        _picked(
            "search-progress",
            records,
            charts.pick(drawn, "search-progress", "the best value so far after each trial"),
        )
        st.caption(trial_charts.PROGRESS_READING)


def _charts(folder: SearchFolder) -> None:
    spec, records = resources.search_spec(folder), resources.search_records(folder)
    if not any(record.state not in ("waiting", "running") for record in records) and not any(
        record.curve for record in records
    ):
        html.empty("No trial has ended yet", "The map, curves and table appear when the first trial has ended.")
        return
    with st.container(key="live-charts"):
        views = {"Map": _map} if len(landscape.axes(spec)) > 1 else {}  # of two ordered dimensions
        views |= TABS
        tabs = st.tabs([*views], key="view", bind="query-params")
    for tab, view in zip(tabs, views.values(), strict=True):
        if tab.open:
            with tab:
                view(folder, records, spec)


def _map(folder: SearchFolder, records: list[TrialRecord], spec: SearchSpec) -> None:
    axes = landscape.axes(spec)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        x = st.selectbox("X axis", axes, 0, format_func=spec.called, key=f"map-x-{folder.id}", width=220)
        rest = [name for name in axes if name != x]
        y = st.selectbox("Y axis", rest, 0, format_func=spec.called, key=f"map-y-{folder.id}", width=220)
        by = _by(folder, spec)
        objective = 0
        if len(spec.objectives) > 1:
            titles = [objective.name for objective in spec.objectives]
            objective = titles.index(st.selectbox("Colour", titles, 0, key=f"map-colour-{folder.id}", width=220))
    drawn = resources.cached_figure(trial_map.draw, records, spec, x, y, by, style.dark(), objective)
    _picked(
        "search-map",
        records,
        charts.pick(drawn, "search-map", f"{spec.objectives[objective].name} over {x} and {y}"),
    )
    st.caption(trial_map.reading(spec, x, y, by))


def _by(folder: SearchFolder, spec: SearchSpec) -> tuple[str, ...]:
    """Draw the choice of the categories whose values get a panel each; returns them."""
    categories = landscape.categories(spec)
    if not categories:
        return ()
    choices: list[tuple[str, ...]] = [(), *((category,) for category in categories)]
    if len(categories) > 1:
        choices.append(tuple(categories))
    offered = [choice for choice in choices if landscape.combined(spec, choice) <= trial_map.MOST_PANELS]
    default = landscape.default_panels(spec)
    chosen = st.selectbox(
        "Facet by",
        offered,
        offered.index(default) if default in offered else 0,
        format_func=lambda chosen: " and ".join(map(spoken, chosen)) or "nothing",
        key=f"map-by-{folder.id}",
        width=260,
    )
    return chosen or ()


def _curves(folder: SearchFolder, records: list[TrialRecord], spec: SearchSpec) -> None:
    drawn = resources.cached_figure(learning_curves.draw, records, spec, style.dark())
    if drawn is None:
        html.empty("No curve yet", "Curves start with a trial's first validation.")
        return
    alt = f"{spec.objectives[0].name} of every trial against samples"
    _picked("search-curves", records, charts.pick(drawn, "search-curves", alt))
    st.caption(learning_curves.READING_DARK if style.dark() else learning_curves.READING)


def _parallel(folder: SearchFolder, records: list[TrialRecord], spec: SearchSpec) -> None:
    drawn = resources.cached_figure(trial_charts.parallel, records, spec, style.dark())
    if drawn is None:
        html.empty("No trial has finished yet", "Each finished trial becomes a line.")
        return
    charts.draw(drawn, "search-parallel", "one line per trial, through its value in every dimension")
    st.caption(trial_charts.PARALLEL_READING)


def _importance(folder: SearchFolder, records: list[TrialRecord], spec: SearchSpec) -> None:
    shares = resources.search_importance(folder)
    if shares is None:
        finished = trial_data.counts(records)["finished"]
        html.empty(
            "Too few trials",
            f"Importance needs {trial_data.FEWEST} finished trials; {finished} have finished."
            if finished < trial_data.FEWEST
            else "All finished trials have the same values in these dimensions.",
        )
        return
    charts.draw(trial_charts.importance(shares, style.dark()), "search-importance", "share of each dimension")
    st.caption(trial_charts.IMPORTANCE_READING)


def _pareto(folder: SearchFolder, records: list[TrialRecord], spec: SearchSpec) -> None:
    drawn = resources.cached_figure(trial_charts.pareto, records, spec, style.dark())
    if drawn is None:
        html.empty("No trial has finished yet", "Each finished trial becomes a dot.")
        return
    _picked("search-pareto", records, charts.pick(drawn, "search-pareto", "two objectives against each other"))
    st.caption(trial_charts.pareto_reading(spec))


def _table(folder: SearchFolder, records: list[TrialRecord], spec: SearchSpec) -> None:
    bar = st.container(horizontal=True, vertical_alignment="center", key="trial-actions")
    order = str(state.widget("trial-order") or widgets.ORDERS[0])
    reader = resources.reader()
    lost = own_values.tagged(reader, folder.id, names.TAG_WORKERS_LOST)
    rows = trial_data.rows(records, spec, own_values.logging_own(reader, folder.id), lost)
    chosen = widgets.trial_table(records, rows, spec, order, f"trials-{folder.id}", resources.search_factors(folder))
    with bar:
        st.segmented_control(
            "Order", widgets.ORDERS, default=widgets.ORDERS[0], required=True, key="trial-order",
            label_visibility="collapsed",
        )  # fmt: skip
        if chosen is None:
            st.caption(widgets.READING)
        else:
            _pressed(widgets.trial_buttons(chosen, "row", primary=False))
            st.caption(f"trial {chosen.number}: {trial_data.words(chosen, spec)}")


TABS = {
    "Curves": _curves, "Parallel coordinates": _parallel, "Importance": _importance, "Pareto": _pareto, "Table": _table,
}  # fmt: skip
"""Those of every search."""
