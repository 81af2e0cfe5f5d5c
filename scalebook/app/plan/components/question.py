"""What is asked: for which workers, rules, shards and links. All of it stands in the address."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import streamlit as st

from scalebook.app.shared.widgets import number_box
from scalebook.training.errors import ConfigError
from scalebook.training.planning.links import NETWORKS, OWN, WORDS
from scalebook.training.planning.question import WORKERS, numbers
from scalebook.training.tracking.names import VAL_ACCURACY

RULES: Final = ("ddp", "fsdp", "async", "bounded:1", "bounded:4", "sync", "sync:1", "softsync:4")
USUAL: Final = ("ddp", "fsdp", "sync", "async")
"""Of a system written by hand, where no rule is chosen."""
SHARDS: Final = ("1", "2", "4", "8", "16")
MOST: Final = 64
MOST_CURVES: Final = 24


@dataclass(frozen=True)
class Asking:
    """What the widgets say, as `PlanRequest` has it."""

    workers: list[int]
    rules: list[str]
    shards: list[int]
    networks: list[str]
    metric: str = ""
    target: float | None = None


def draw(asked: Mapping[str, Sequence[str]], metrics: Sequence[str], *, trains: bool) -> Asking:
    """The widgets; `asked` is what the address says, `trains`: there is a config, which may be trained to a target of
    one of these `metrics`.

    ConfigError for what is no number, and for more than MOST_CURVES at once.
    """
    columns = st.columns(2)
    rule_now, shards_now = ("the config's, beside others", "from the config") if trains else (", ".join(USUAL), "1")
    with columns[0]:
        rules = st.multiselect(
            "Strategies", list(dict.fromkeys([*RULES, *asked.get("rules", ())])), [] if trains else list(USUAL),
            key="rules", bind="query-params", accept_new_options=True, placeholder=rule_now,
            help="ddp, fsdp, or the rule of a parameter server, with its first argument after a colon: bounded:2, "
                 "sync:1 (one backup worker).",
        )  # fmt: skip
        most = st.select_slider("Workers up to", [str(count) for count in WORKERS[2:]], str(MOST), key="most",
                                bind="query-params")  # fmt: skip
    with columns[1]:
        titles = {OWN: "the system's own", **{name: WORDS[name].partition(",")[0] for name in NETWORKS}}
        links = st.multiselect(
            "Links", list(titles.values()), [titles[OWN]], key="links", bind="query-params",
            placeholder="the system's own, 10 Gbit/s Ethernet",
            help="Any other link puts each worker on its own machine.",
        )  # fmt: skip
        shards = st.multiselect(
            "Shards", list(dict.fromkeys([*SHARDS, *asked.get("shards", ())])), [] if trains else ["1"],
            key="shards", bind="query-params", accept_new_options=True, placeholder=shards_now,
            help="Parts of the parameters, each with its own server.",
        )  # fmt: skip
        metric, target = _target(metrics) if trains else ("", None)
    said = Asking(
        [count for count in WORKERS if count <= int(most)],
        list(rules) or ([] if trains else list(USUAL)),
        list(numbers(",".join(shards) or "1", "--shards")) if shards or not trains else [],
        [name for name, title in titles.items() if title in links],
        metric,
        target,
    )
    if (curves := (len(said.rules) or 1) * (len(said.shards) or 1) * len(said.networks)) > MOST_CURVES:
        remedy = f"Choose fewer rules, shards or links: at most {MOST_CURVES} combinations."
        raise ConfigError("plan", f"asks for {curves} curves", remedy)
    return said


def _target(metrics: Sequence[str]) -> tuple[str, float | None]:
    """A metric and a value of it; ("", None) where no value was written."""
    hint = (
        "Also trains with up to 16 virtual workers, under the first rule, link and number of shards. Time to "
        "target = updates to target × seconds per update."
    )
    target = number_box("Target", None, "target", empty="none", hint=hint, in_address=True)
    if isinstance(target, str):
        raise ConfigError("target", f"{target!r} is not a number", "Write one, such as 0.95.")
    if target is None:
        return "", None
    first = VAL_ACCURACY if VAL_ACCURACY in metrics else next(iter(metrics), "")
    hint = f"A metric that the model logs: {', '.join(metrics)}." if metrics else "A metric that the model logs."
    metric = st.text_input("Metric", first, key="metric", bind="query-params", help=hint)
    return metric.strip(), float(target)
