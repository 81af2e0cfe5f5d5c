"""What was found: in words, in charts, in a table."""

import streamlit as st

from scalebook.app.plan.components import charts as plan_charts
from scalebook.app.plan.components import findings_table
from scalebook.app.plan.services import findings
from scalebook.app.shared import charts, style
from scalebook.app.shared.words import plural
from scalebook.training.planning.answer import Answer
from scalebook.training.planning.target import TargetAnswer, target_words
from scalebook.training.planning.words import accuracy, compared, sentences


def show(answer: Answer, file: str) -> None:
    """`file`: what a download is called."""
    st.header("Answer")
    dark = style.dark()
    if best := compared(answer):
        st.markdown("\n".join(f"- {line}" for line in best))
    charts.draw(plan_charts.samples(answer, dark), "plan-samples", "samples a second against workers")
    st.header("Each strategy")
    for curve, name in zip(answer.curves, findings.names(answer.curves), strict=True):
        lines = sentences(curve, answer.elastic, answer.config_workers)
        st.markdown(f"**{name}**\n\n" + "\n".join(f"- {line}" for line in lines))
    with st.expander("How accurate?"):
        st.markdown("\n".join(f"- {line}" for line in accuracy(answer)))
    st.header("By number of workers")
    left, right = st.columns(2)
    with left:
        charts.draw(plan_charts.idle(answer, dark), "plan-idle", "share of time without computing against workers")
    with right:
        charts.draw(plan_charts.updates(answer, dark), "plan-updates", "updates a second against workers")
        charts.draw(plan_charts.staleness(answer, dark), "plan-staleness", "mean and p95 staleness against workers")
    st.caption(plan_charts.READING)
    st.header("All figures")
    findings_table.draw(answer, file)


def show_target(found: TargetAnswer, answer: Answer) -> None:
    """How long until the target, and both factors of it."""
    st.header(f"Time to {found.metric} {found.target:g}")
    st.markdown(target_words(found, answer.curves[0].reliability))
    titles = ("updates to the target", "seconds per update", "seconds to the target")
    for i, (column, figure) in enumerate(
        zip(st.columns(3), plan_charts.target(found, titles, style.dark()), strict=True)
    ):
        with column:
            charts.draw(figure, f"plan-target-{i}", f"{titles[i]} against workers")
    findings_table.draw_target(found)
    st.caption(f"Under {found.rule}, at the config's own learning rate; {plural(found.seeds, 'seed')}.")
