"""One switch for workers that one process plays, and how long each of them computes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import streamlit as st

from scalebook.app.shared.components import number_box
from scalebook.app.shared.services import form
from scalebook.training.config.description import Description, Field
from scalebook.training.config.workload import VIRTUAL

HELP: Final = (
    "More workers than this machine has: one process computes all their gradients, each from the version of the "
    "parameters that its worker would have had. A clock that you declare says who comes when, and seconds are its time."
)
MEANING: Final = (
    "One process plays all workers, each with the parameters that it would have had. Seconds are those of the clock "
    "that you declare: 100 workers take as long as 100 machines would."
)
OFFER: Final = "To try more workers than this machine has: one process plays them all."
RUN: Final = (
    "The id of a run with real workers, or its beginning: gradients take what its workers' took, pushes what its "
    "servers needed for them, tail and all. Empty: a number."
)
SECONDS: Final = (
    "Virtual seconds that a worker takes for one. Stragglers, links, deaths and the servers' time: under `clock`, as "
    "YAML."
)


def draw(
    config: form.Config,
    last: form.Config,
    description: Description,
    key: Callable[[str], str],
    slot: Callable[[str], None],
) -> list[str]:
    """Draw it and write it into the config; the strategy's arguments that have no place beside it.

    `last`: what the page said before. `key` makes a widget's key of a name; `slot` leaves a place for the problems of
    a dotted path.
    """
    left, right = st.columns([2, 1], vertical_alignment="bottom")
    workers, before, clock = form.workers_of(config, description), form.is_virtual(config), form.CLOCK
    with left:
        said = st.toggle("Virtual workers", before, key=key("virtual"), help=HELP)
        st.caption(MEANING if said else OFFER)
    if said != before:
        (form.make_virtual if said else form.make_real)(config, workers)
    if not said:
        return ["clock", "host"] if form.is_virtual(last) else ["clock"]  # a fold carries over what was there
    with left:
        recorded = _run(config, key("recorded_run"))
    with right:
        seconds: Any = form.get(config, f"{clock}.gradient_s")
        if recorded:
            slot(f"{clock}.server_s")
        elif isinstance(seconds, dict):
            st.caption(f"A gradient takes what `clock` says: {seconds.get('kind', 'a distribution')}.")
        else:
            gradient_s = number_box.draw("Seconds per gradient", seconds, key("gradient_s"), hint=SECONDS)
            form.put(config, f"{clock}.gradient_s", gradient_s)
        slot(clock)
        slot(f"{clock}.gradient_s")
    return ["clock", "host", "overlap"]


def _run(config: form.Config, key: str) -> str:
    """The run whose timings are taken, which is written into the config; "" for none."""
    before = form.recorded_run(config)
    run = st.text_input("Times as recorded in run", before, key=key, placeholder="id of a run", help=RUN).strip()
    if run != before:
        form.take_recorded(config, run)
    return run


def real(argument: Field) -> Field:
    """Without the choice that the switch makes."""
    return replace(argument, choices=[choice for choice in argument.choices if choice != VIRTUAL])
