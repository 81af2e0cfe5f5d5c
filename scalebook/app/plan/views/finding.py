"""What was found: in words, in charts, in a table."""

import streamlit as st

from scalebook.app.plan.components import charts, findings_table
from scalebook.app.plan.services import findings
from scalebook.app.shared.components import chart_view, style
from scalebook.training.planning.answer import Answer
from scalebook.training.planning.words import reliability_words, sentences


def show(answer: Answer, file: str) -> None:
    """`file`: what a download is called."""
    st.subheader("In words")
    for curve, name in zip(answer.curves, findings.names(answer.curves), strict=True):
        lines = sentences(curve, answer.reliability)
        st.markdown(f"**{name}**\n\n" + "\n".join(f"- {line}" for line in lines))
    st.caption(reliability_words(answer.reliability))
    st.subheader("Against the number of workers")
    left, right = st.columns(2)
    dark = style.dark()
    with left:
        chart_view.draw(charts.samples(answer, dark), "plan-samples", "samples a second against workers")
        chart_view.draw(charts.idle(answer, dark), "plan-idle", "share of time without computing against workers")
    with right:
        chart_view.draw(charts.updates(answer, dark), "plan-updates", "updates a second against workers")
        chart_view.draw(charts.staleness(answer, dark), "plan-staleness", "mean and p95 staleness against workers")
    st.caption(charts.READING)
    st.subheader("All figures")
    findings_table.draw(answer, file)
