"""The Plan page, for an experiment or a system described by hand: the question and its answer."""

from dataclasses import asdict

import streamlit as st

from scalebook.app import resources, state
from scalebook.app.navigation import NOTEBOOK
from scalebook.app.plan import answer_charts, data, widgets
from scalebook.app.shared import charts, html, notebooks, style
from scalebook.app.shared.widgets import page_title, press_button
from scalebook.app.shared.words import plural
from scalebook.training.base import ConfigError
from scalebook.training.experiments import Experiment, classes, config_hash, require
from scalebook.training.jobs import this_machine
from scalebook.training.notebook import ExperimentCell, offered
from scalebook.training.planner import (
    Answer,
    PlanRequest,
    QuestionFolder,
    TargetAnswer,
    answer_words,
    measured,
    split_words,
    target_words,
)
from scalebook.training.pricing import Profile, profile_mapping

MACHINE, FORM, YAML = "Measured here", "Form", "YAML"
PLAY, STOP, ANEW = "plan-play", "plan-stop", "plan-anew"
EVERY_S = 1.0
RECENT_RUNS = 5
ABOUT = (
    "How fast a system would train with more workers, where adding them stops helping, and why. The timing is "
    "simulated with the real engine, and nothing is trained."
)


def show(notebook: str, name: str) -> None:
    """The whole page; `name` is the experiment's whose parts are measured, "" where the system is written by hand."""
    cell = _cell(notebook, name)
    if unknown := [key for key in st.query_params if key not in widgets.KEYS]:
        _unknown_key(unknown[0])
        return
    try:
        left, right = st.columns([11, 9], gap="large")
        with left:
            st.header("System")
            profile = _system(cell)
        with right:
            st.header("Question")
            asking = widgets.ask_question(
                {key: st.query_params.get_all(key) for key in ("rules", "shards")},
                _metrics(notebook, cell),
                trains=profile is None,
                layered=profile is None or bool(profile.layers),
                cores=len(this_machine().cores) if profile is None else profile.gpus or profile.cores,
            )
        if profile is None and cell is not None:
            written, hashed = None, config_hash(cell.experiment(resources.description()))
        else:
            assert profile is not None, "without a cell, the form makes the profile"
            written, hashed = profile_mapping(profile), ""
        folder = QuestionFolder(resources.workspace(), PlanRequest(written, hashed, **asdict(asking)))
        folder.request.question()
        is_example = profile is not None and profile in data.examples()
    except ConfigError as error:
        st.error(str(error), icon=":material/error:")
        return
    working = folder.running() is not None
    experiment = cell.experiment(resources.description()) if cell is not None else None
    st.fragment(_standing, run_every=EVERY_S if working else None)(
        folder, experiment, name or "plan", working, is_example
    )


def _unknown_key(key: str) -> None:
    """Say which part of the address is wrong, so that nobody takes the example for the system that was meant."""
    remedy = classes.suggestion(key, widgets.KEYS)
    st.error(f"The address has `{key}`, which is not a parameter of this page. {remedy}", icon=":material/error:")


def _metrics(notebook: str, cell: ExperimentCell | None) -> list[str]:
    """The metrics that the experiment's runs have logged."""
    choice = notebooks.pick(resources.workspace(), notebook) if cell is not None else None
    if cell is None or choice is None:
        return []
    runs = resources.reader().runs(notebook=choice.path.name, cell=cell.name, limit=RECENT_RUNS)
    return offered([cell.experiment(resources.description())], runs)


def _cell(notebook: str, name: str) -> ExperimentCell | None:
    """Draw the head of the page and the link back; returns the experiment in the address, None if it does not exist."""
    choice = notebooks.pick(resources.workspace(), notebook) if notebook else None
    stored, _ = notebooks.load(choice) if choice else (None, "")
    if choice is not None:
        label = " › ".join(part for part in (choice.title, name) if part)
        st.page_link(NOTEBOOK.script, label=label, icon=":material/arrow_back:",
                     query_params=NOTEBOOK.cell(choice.name, name))  # fmt: skip
    page_title(f"Plan {name}" if name else "Plan", ABOUT, choice.title if choice else "")
    cell = stored.notebook.experiment(name) if stored and name else None
    if name and cell is None:
        st.warning(
            f"{notebook} has no experiment {name}. It has been renamed or deleted. You can describe a system "
            "by hand instead."
        )
    return cell


def _system(cell: ExperimentCell | None) -> Profile | None:
    """Draw the system; returns the profile described by hand, None if this machine is measured."""
    kinds = [*([MACHINE] if cell is not None else []), FORM, YAML]
    kind = st.segmented_control("System from", kinds, default=kinds[0], required=True, key="system",
                                bind="query-params", label_visibility="collapsed")  # fmt: skip
    if cell is None or kind in (FORM, YAML):
        return widgets.system_text() if kind == YAML else widgets.system_fields()
    profile = measured(resources.workspace(), config_hash(cell.experiment(resources.description())))
    if profile is None:
        html.empty("Not measured yet", f"Plan first measures {cell.name} on this machine, which takes less than 30 s.")
    else:
        widgets.system_facts(profile)
    return None


def _standing(
    folder: QuestionFolder, experiment: Experiment | None, name: str, was_working: bool, is_example: bool
) -> None:
    """Draw the buttons, then the progress or the answer. `is_example`: nobody has described a system."""
    progress = folder.running()
    if was_working and progress is None:
        st.rerun()  # the page stops looking every second, and shows what was measured
    failure, answer = folder.failure(), None if progress else folder.answer()
    reached, measures = folder.target_answer(), folder.request.profile is None
    missing = answer is None or (folder.request.target is not None and reached is None)
    label = "Plan" if answer is None else "Train to the target"
    with st.container(horizontal=True):
        idle = progress is None
        if idle and missing and press_button(label, PLAY, type="primary", icon=":material/timeline:"):
            _start(folder, experiment, anew=False)
        can_remeasure = measures and folder.profile() is not None
        if idle and can_remeasure and press_button("Measure again", ANEW, type="tertiary", icon=":material/refresh:"):
            _start(folder, experiment, anew=True)
        if not idle and press_button("Stop", STOP, icon=":material/stop:"):
            folder.stop()
            state.clicks().mark_handled(STOP)
            st.rerun()
    if progress is not None:
        st.progress(min(1.0, progress.done / (progress.whole or 1)), text=progress.words)
    elif failure is not None:
        st.error(f"{failure.key}: {failure.message}. {failure.remedy}", icon=":material/error:")
    if progress is None and answer is not None:
        _show_finding(answer, name, is_example)
        if reached is not None:
            _show_target(reached, answer)
    elif progress is None and failure is None:
        html.empty("No plan yet", "Press Plan to see the answer in words, in charts and in a table.")


def _start(folder: QuestionFolder, experiment: Experiment | None, *, anew: bool) -> None:
    key = ANEW if anew else PLAY
    try:
        if folder.request.profile is None:
            assert experiment is not None, "it is a cell's"
            require(experiment, queued=False)
            folder.start(experiment, anew=anew)
        else:
            folder.start()
    except ConfigError as error:
        state.show_message(str(error), ":material/error:")
    state.clicks().mark_handled(key)
    st.rerun()


def _show_finding(answer: Answer, file: str, is_example: bool) -> None:
    """Draw the answer. `file`: name of the downloads."""
    st.header("Answer for the example" if is_example else "Answer")
    dark = style.dark()
    if best := answer_words.compare_strategies(answer):
        st.markdown("\n".join(f"- {line}" for line in best))
    charts.draw(answer_charts.samples(answer, dark), "plan-samples", "samples per second by number of workers")
    for split in answer.splits:
        st.header(split_words.split_title(split))
        st.markdown("\n".join(f"- {line}" for line in split_words.first_words(split)))
        widgets.split_table(split)
    st.header("Each strategy")
    for curve, name in zip(answer.curves, data.curve_names(answer.curves), strict=True):
        lines = answer_words.sentences(curve, answer.elastic, answer.config_workers)
        st.markdown(f"**{name}**\n\n" + "\n".join(f"- {line}" for line in lines))
    with st.expander("How accurate?"):
        st.markdown("\n".join(f"- {line}" for line in answer_words.accuracy(answer)))
    st.header("By number of workers")
    left, right = st.columns(2)
    with left:
        charts.draw(
            answer_charts.idle(answer, dark), "plan-idle", "share of time without computing, by number of workers"
        )
    with right:
        charts.draw(answer_charts.updates(answer, dark), "plan-updates", "updates per second by number of workers")
        charts.draw(
            answer_charts.staleness(answer, dark),
            "plan-staleness",
            "mean and 95th percentile of staleness, by number of workers",
        )
    st.caption(answer_charts.READING)
    st.header("All figures")
    widgets.findings_table(answer, file)


def _show_target(reached: TargetAnswer, answer: Answer) -> None:
    """Draw the time to the target, and its two factors."""
    st.header(f"Time to {reached.metric} {reached.target:g}")
    st.markdown(target_words(reached, answer.curves[0].reliability))
    titles = ("updates to the target", "seconds per update", "seconds to the target")
    for i, (column, figure) in enumerate(
        zip(st.columns(3), answer_charts.target(reached, titles, style.dark()), strict=True)
    ):
        with column:
            charts.draw(figure, f"plan-target-{i}", f"{titles[i]} by number of workers")
    widgets.target_table(reached)
    st.caption(f"With {reached.rule}, at the learning rate of the config; {plural(reached.seeds, 'seed')}.")
