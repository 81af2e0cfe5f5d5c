"""The parts of the Plan page: the question, the system, the table of the answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import streamlit as st

from scalebook.app.plan import answer_charts, data
from scalebook.app.plan.data import FIELDS
from scalebook.app.shared import html
from scalebook.app.shared.widgets import number_box
from scalebook.app.shared.words import figure
from scalebook.training.base import ConfigError, roughly
from scalebook.training.planner import (
    WORKERS,
    Answer,
    Basis,
    SplitAnswer,
    TargetAnswer,
    answer_words,
    numbers,
    split_words,
    usual_workers,
)
from scalebook.training.pricing import Profile, format_quantity, links
from scalebook.training.tracking import names

RULES: Final = ("ddp", "fsdp", "async", "bounded:1", "bounded:4", "sync", "sync:1", "softsync:4")
USUAL: Final = ("ddp", "fsdp", "sync", "async")
"""The rules for a system described by hand, if none is chosen."""
SHARDS: Final = ("1", "2", "4", "8", "16")
MOST_CURVES: Final = 24


@dataclass(frozen=True)
class QuestionForm:
    """The values of the widgets, as `PlanRequest` takes them."""

    workers: list[int]
    rules: list[str]
    shards: list[int]
    networks: list[str]
    metric: str = ""
    target: float | None = None
    split: int = 0


def ask_question(
    address: Mapping[str, Sequence[str]], metrics: Sequence[str], *, trains: bool, layered: bool, cores: int | None
) -> QuestionForm:
    """Draw the question: which workers, rules, shards and links.

    `address` holds the query parameters, which the widgets keep up to date. `trains`: there is a config, which may be
    trained to a target of one of `metrics`. `layered`: the layers of the model are known, or will be measured.
    `cores`: those (or the GPUs) that workers share, None if they share none.
    ConfigError for a value that is not a number, and for more than MOST_CURVES at once.
    """
    columns = st.columns(2)
    rule_now, shards_now = ("the config's, and others", "from the config") if trains else (", ".join(USUAL), "1")
    with columns[0]:
        rules = st.multiselect(
            "Strategies", list(dict.fromkeys([*RULES, *address.get("rules", ())])), [] if trains else list(USUAL),
            key="rules", bind="query-params", accept_new_options=True, placeholder=rule_now,
            help="ddp, fsdp, or a parameter-server rule. The rule's first argument can follow a colon: bounded:2, or "
                 "sync:1 (one backup worker).",
        )  # fmt: skip
        usual = usual_workers(cores, [links.OWN])[-1]
        most = st.select_slider("Workers up to", [str(count) for count in WORKERS[1:]], str(usual), key="most",
                                bind="query-params")  # fmt: skip
        metric, target = _target(metrics) if trains else ("", None)
    with columns[1]:
        titles = {
            links.OWN: "the system's own",
            **{name: links.WORDS[name].partition(",")[0] for name in links.NETWORKS},
        }
        named = st.multiselect(
            "Links", list(titles.values()), [titles[links.OWN]], key="links", bind="query-params",
            placeholder="the system's own, 10 Gbit/s Ethernet",
            help="With any other link, each worker runs on a separate node.",
        )  # fmt: skip
        shards = st.multiselect(
            "Shards", list(dict.fromkeys([*SHARDS, *address.get("shards", ())])), [] if trains else ["1"],
            key="shards", bind="query-params", accept_new_options=True, placeholder=shards_now,
            help="Number of parts that the parameters are divided into, each on a separate server.",
        )  # fmt: skip
        split = _split() if layered else 0
    question = QuestionForm(
        [count for count in WORKERS if count <= int(most)],
        list(rules) or ([] if trains else list(USUAL)),
        list(numbers(",".join(shards) or "1", "--shards")) if shards or not trains else [],
        [name for name, title in titles.items() if title in named],
        metric,
        target,
        split,
    )
    if (curves := (len(question.rules) or 1) * (len(question.shards) or 1) * len(question.networks)) > MOST_CURVES:
        remedy = f"Choose fewer rules, shards or links: at most {MOST_CURVES} combinations."
        raise ConfigError("plan", f"asks for {curves} curves", remedy)
    return question


def _split() -> int:
    """Draw over how many workers the model itself is split; 0 without a value."""
    hint = (
        "Also estimates every split of the model over this many workers (tensor, shard, pipeline stages, data). If "
        "there are more workers than cores on this machine, choose a link."
    )
    count = number_box("Split the model over", None, "split", whole=True, empty="not", hint=hint, in_address=True)
    if isinstance(count, str):
        raise ConfigError("split", f"{count!r} is not a number", "Enter a number, such as 8.")
    return int(count or 0)


def _target(metrics: Sequence[str]) -> tuple[str, float | None]:
    """Draw the target; returns a metric and its value, ("", None) without a value."""
    hint = (
        "Also trains with up to 16 virtual workers, using the first rule, link and number of shards. Time to target "
        "= updates to target × seconds per update."
    )
    target = number_box("Target", None, "target", empty="none", hint=hint, in_address=True)
    if isinstance(target, str):
        raise ConfigError("target", f"{target!r} is not a number", "Enter a number, such as 0.95.")
    if target is None:
        return "", None
    first = names.VAL_ACCURACY if names.VAL_ACCURACY in metrics else next(iter(metrics), "")
    hint = f"A metric that the model logs: {', '.join(metrics)}." if metrics else "A metric that the model logs."
    metric = st.text_input("Metric", first, key="metric", bind="query-params", help=hint)
    return metric.strip(), float(target)


KEYS: Final = (
    "notebook", "cell", "experiment", "system", "rules", "most", "links", "shards", "split", "target", "metric",
    "profile", "price", *(field.key for field in FIELDS),
)  # fmt: skip
"""Query parameters of the page: where it comes from, and its widgets."""
WIDTH = 150
"""Pixels: two beside each other at 400."""


EXAMPLE: Final = (
    "These numbers are an **example**: a model of 25 M parameters on accelerators. Replace them with yours, or press "
    "Plan on an experiment's card to measure that experiment."
)


def system_fields() -> Profile:
    """Draw the system as fields, which the address holds. ConfigError for values that make no profile."""
    typed = {}
    with st.container(horizontal=True):
        for field in FIELDS:
            typed[field.key] = st.text_input(
                field.label, field.default, key=field.key, help=field.hint, bind="query-params", width=WIDTH
            )
    if typed == {field.key: field.default for field in FIELDS}:
        st.caption(EXAMPLE)
    return data.from_fields(typed)


def system_text() -> Profile:
    """Draw the system as YAML, which the address holds. ConfigError for a text that is no profile."""
    text = st.text_area("Profile", data.TEMPLATE, height=230, key="profile", bind="query-params",
                        label_visibility="collapsed")  # fmt: skip
    if text == data.TEMPLATE:
        st.caption(EXAMPLE)
    return data.from_text(text)


def system_facts(profile: Profile) -> None:
    """Draw the figures of a measured profile."""
    if warning := answer_words.busy_words(profile):
        st.warning(warning, icon=":material/warning:")
    html.facts(data.facts(profile))
    st.caption(profile.source)


HEAD = (
    "Setting", "workers", "updates/s", "samples/s", "× one worker", "computing", "sending", "idle", "staleness", "p95",
    "memory each",
)  # fmt: skip
BASIS = "rates are"


def findings_table(answer: Answer, file: str) -> None:
    """Draw the table, the knee's row in bold, and a download button."""
    price = number_box("Price per worker-hour", None, "price", empty="none", in_address=True,
                            hint="In any currency. Adds a column with the price of a million samples.")  # fmt: skip
    if isinstance(price, str) or (price is not None and price < 0):
        st.error(f"price: {price} is not a price. Enter a number, such as 2.5.", icon=":material/error:")
        price = None
    has_basis = any(curve.measured for curve in answer.curves)
    head = (*HEAD, *([] if price is None else ["per 1M samples"]), *([BASIS] if has_basis else []))
    rows = []
    for curve, name in zip(answer.curves, data.curve_names(answer.curves), strict=True):
        beyond = curve.knee.beyond if curve.knee else None
        for i, point in enumerate(curve.points):
            last_before = i + 1 < len(curve.points) and curve.points[i + 1].workers == beyond
            rows.append(
                [
                    html.text(name if i == 0 else "", "" if i == 0 else "dim"),
                    html.number(f"{point.workers}", best=last_before),
                    html.number(figure(point.updates_per_s, 3)),
                    html.number(figure(point.samples_per_s, 3), best=last_before),
                    html.number(figure(data.speedup(curve, point), 3)),
                    html.number(f"{point.compute:.0%}"),
                    html.number(f"{point.communicate:.0%}"),
                    html.number(f"{point.idle:.0%}"),
                    html.number(figure(point.staleness, 3)),
                    html.number(f"{point.staleness_p95}"),
                    html.number(format_quantity(point.memory, "B") if point.memory else ""),
                    *([] if price is None else [html.number(figure(answer_words.million_price(point, price), 3))]),
                    *([_basis(curve.basis(point.workers))] if has_basis else []),
                ]
            )
    html.draw(html.table(head, rows, numeric=range(1, len(head) - has_basis), label="All figures"))
    st.caption(
        "Bold: the largest number of workers that still helps. Sending: push (including queueing) and pull. Memory: "
        "weights, gradients and optimizer state of one worker, without activations."
    )
    st.download_button("CSV", data.as_csv(answer), f"{file}.csv", "text/csv", key="plan-csv", on_click="ignore",
                       icon=":material/download:", type="tertiary")  # fmt: skip


def _basis(basis: Basis) -> html.Cell:
    return html.Cell(html.swatch(answer_charts.basis_colour(basis)) + basis)


def split_table(answer: SplitAnswer) -> None:
    """Draw the splits, each with what limits it; what cannot be trained is crossed out."""
    rows = []
    for row in data.split_rows(answer):
        name = html.struck(row.words) if row.struck else html.text(row.words)
        rows.append([name, *(html.number(each) for each in row.figures), html.text(row.cause, "wide")])
    head = ("Split", *data.SPLIT_FIGURES, "limit")
    html.draw(html.table(head, rows, numeric=range(1, len(head) - 1), label=split_words.split_title(answer)))
    st.caption(" ".join([data.split_count(answer), *split_words.last_words(answer)]))


def target_table(answer: TargetAnswer) -> None:
    """Draw the table of both factors and the time."""
    rows = [
        [
            html.number(f"{point.workers}"),
            html.number(figure(point.updates, 3) if point.updates is not None else "missed"),
            html.number(figure(point.updates_per_s, 3)),
            html.number(roughly(point.seconds) if point.seconds is not None else ""),
        ]
        for point in answer.points
    ]
    html.draw(
        html.table(
            ("workers", "updates needed", "updates/s", "time"), rows, numeric=range(4), label="Time to the target"
        )
    )
