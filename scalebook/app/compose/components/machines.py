"""On how many machines a run is, and whether these may join and leave while it trains."""

from collections.abc import Callable
from typing import Any, Final

import streamlit as st

from scalebook.app.shared import form
from scalebook.app.shared.widgets import number_box
from scalebook.training.config.description import ClassInfo, Description, Field

FIXED: Final = "fixed number"


def draw(
    config: form.Config,
    description: Description,
    strategy: ClassInfo | None,
    key: Callable[[str], str],
    field: Callable[[str, Field, str], Any],
    slot: Callable[[str], None],
) -> None:
    """Draw both and write them into the config: machines, and the fewest workers where `strategy` can have a range.
    Neither for one process.

    `key` makes a widget's key of a name, `field` draws a described one at a dotted path, `slot` leaves a place for the
    problems of a dotted path.
    """
    if strategy is not None and strategy.config_value == "auto" and form.get(config, "trainer.num_nodes", 1) == 1:
        return
    left, right = st.columns(2)
    nodes = next((one for one in description.trainer if one.name == "num_nodes"), None)
    with left:
        if nodes is not None:
            field(f"trainer.{nodes.name}", nodes, "Machines")
    if strategy is None or not form.may_range(config, strategy):
        return
    with right:
        before = form.get(config, f"{form.WORKERS}.min")
        hint = next(one.help for one in strategy.fields if one.name == "workers")
        fewest = number_box("Fewest workers", before, key("fewest"), whole=True, hint=hint, empty=FIXED)
        slot(form.WORKERS)
    form.assign_fewest(config, fewest, description)
