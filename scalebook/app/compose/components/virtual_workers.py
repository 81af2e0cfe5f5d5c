"""One switch for workers that one process plays, and how long each of them computes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import streamlit as st

from scalebook.app.compose.services import clock_sources
from scalebook.app.compose.services.clock_sources import ClockSource
from scalebook.app.shared.components import number_box
from scalebook.app.shared.services import form
from scalebook.training.config.description import Description, Field
from scalebook.training.config.workload import VIRTUAL

HELP: Final = (
    "Simulates more workers than this machine has: one process computes all gradients, each from the "
    "parameter version that its worker would hold. Seconds are those of the clock that you declare."
)
MEANING: Final = (
    "One process simulates all workers, each with the parameters that it would hold. Seconds are those "
    "of the clock that you declare: 100 workers take as long as 100 machines would."
)
OFFER: Final = "Try more workers than this machine has: one process simulates them all."
TIMES: Final = (
    "From a Plan of an experiment with this model and data, from a recorded run with real workers (with "
    "its tail), or a number."
)
SECONDS: Final = (
    "Virtual seconds per gradient of a worker. Set stragglers, links, deaths and server time under `clock`, as YAML."
)
EXAMPLE: Final = (
    "0.1 s is an example, not a measurement. **Plan**, on the card of an experiment with this model and "
    "data, measures it; then choose it here."
)
NUMBER: Final = ClockSource("A number", {})
WRITTEN: Final = ClockSource("From the clock", {})


def draw(
    config: form.Config,
    last: form.Config,
    description: Description,
    key: Callable[[str], str],
    slot: Callable[[str], None],
    known: Callable[[], Sequence[ClockSource]],
) -> list[str]:
    """Draw it and write it into the config; the strategy's arguments that have no place beside it.

    `last`: what the page said before. `key` makes a widget's key of a name; `slot` leaves a place for the problems of
    a dotted path. `known`: where times can come from.
    """
    left, right = st.columns([2, 1], vertical_alignment="bottom")
    workers, before, clock = form.workers_of(config, description), form.is_simulated(config), form.CLOCK
    with left:
        said = st.toggle("Virtual workers", before, key=key("virtual"), help=HELP)
        st.caption(MEANING if said else OFFER)
    if said != before:
        (form.make_simulated if said else form.make_real)(config, workers)
    if not said:
        return ["clock", "host"] if form.is_simulated(last) else ["clock"]  # a fold carries over what was there
    with left:
        source = _source(config, key("clock_source"), known(), is_new=not before)
    with right:
        if source is NUMBER:
            seconds: Any = form.get(config, f"{clock}.gradient_s")
            gradient_s = number_box.draw("Seconds per gradient", seconds, key("gradient_s"), hint=SECONDS)
            form.put(config, f"{clock}.gradient_s", gradient_s)
            if gradient_s == form.USUAL_GRADIENT_S:
                st.caption(EXAMPLE)
        else:
            slot(f"{clock}.server_s")
        slot(clock)
        slot(f"{clock}.gradient_s")
    return ["clock", "host"]


def _source(config: form.Config, key: str, known: Sequence[ClockSource], *, is_new: bool) -> ClockSource:
    """Where the times come from, which is written into the config. A new clock begins with what Plan has measured."""
    is_number = not isinstance(form.get(config, f"{form.CLOCK}.gradient_s"), dict)
    before = clock_sources.chosen(config, known) or (NUMBER if is_number else WRITTEN)
    options = list(dict.fromkeys([NUMBER.label, before.label, *(source.label for source in known)]))
    by_label = {source.label: source for source in (*known, before, NUMBER)}
    first = known[0] if is_new and known and known[0].is_measured else before
    picked = by_label[st.selectbox("Times", options, options.index(first.label), key=key, help=TIMES)]
    if picked is not before:
        form.take_clock(config, picked.clock)
    return picked


def real(argument: Field) -> Field:
    """Without the choice that the switch makes."""
    return replace(argument, choices=[choice for choice in argument.choices if choice != VIRTUAL])
