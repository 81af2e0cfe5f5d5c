"""All figures of an answer, a row for each number of workers."""

import streamlit as st

from scalebook.app.plan.services import findings
from scalebook.app.shared import html
from scalebook.app.shared.widgets import number_box
from scalebook.app.shared.words import figure
from scalebook.training.durations import roughly
from scalebook.training.planning.answer import Answer
from scalebook.training.planning.quantities import shown
from scalebook.training.planning.target import TargetAnswer
from scalebook.training.planning.words import million_price

HEAD = (
    "Setting", "workers", "updates/s", "samples/s", "× one worker", "computing", "sending", "idle", "staleness", "p95",
    "memory each",
)  # fmt: skip


def draw(answer: Answer, file: str) -> None:
    """The table; below it, what it can be downloaded as. The knee's row is bold."""
    price = number_box("Price per worker-hour", None, "price", empty="none", in_address=True,
                            hint="In any currency. Adds what a million samples cost.")  # fmt: skip
    if isinstance(price, str) or (price is not None and price < 0):
        st.error(f"price: {price} is not a price. Write a number, such as 2.5.", icon=":material/error:")
        price = None
    head = HEAD if price is None else (*HEAD, "per 1M samples")
    rows = []
    for curve, name in zip(answer.curves, findings.names(answer.curves), strict=True):
        beyond = curve.knee.beyond if curve.knee else None
        for i, point in enumerate(curve.points):
            last_before = i + 1 < len(curve.points) and curve.points[i + 1].workers == beyond
            rows.append(
                [
                    html.text(name if i == 0 else "", "" if i == 0 else "dim"),
                    html.number(f"{point.workers}", best=last_before),
                    html.number(figure(point.updates_per_s, 3)),
                    html.number(figure(point.samples_per_s, 3), best=last_before),
                    html.number(figure(findings.speedup(curve, point), 3)),
                    html.number(f"{point.compute:.0%}"),
                    html.number(f"{point.communicate:.0%}"),
                    html.number(f"{point.idle:.0%}"),
                    html.number(figure(point.staleness, 3)),
                    html.number(f"{point.staleness_p95}"),
                    html.number(shown(point.memory, "B") if point.memory else ""),
                    *([] if price is None else [html.number(figure(million_price(point, price), 3))]),
                ]
            )
    html.draw(html.table(head, rows, numeric=range(1, len(head)), label="All figures"))
    st.caption(
        "Bold: as far as workers help. Sending: push (with queueing) and pull. Memory: weights, "
        "gradients and optimizer state of one worker, without activations."
    )
    st.download_button("CSV", findings.as_csv(answer), f"{file}.csv", "text/csv", key="plan-csv", on_click="ignore",
                       icon=":material/download:", type="tertiary")  # fmt: skip


def draw_target(found: TargetAnswer) -> None:
    """Both factors, and the time."""
    rows = [
        [
            html.number(f"{point.workers}"),
            html.number(figure(point.updates, 3) if point.updates is not None else "missed"),
            html.number(figure(point.updates_per_s, 3)),
            html.number(roughly(point.seconds) if point.seconds is not None else ""),
        ]
        for point in found.points
    ]
    html.draw(
        html.table(
            ("workers", "updates needed", "updates/s", "time"), rows, numeric=range(4), label="Time to the target"
        )
    )
