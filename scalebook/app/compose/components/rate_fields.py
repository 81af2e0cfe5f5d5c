"""The form's section on learning rate and batch: how one follows the other, and whether the noise scale is measured."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import streamlit as st

from scalebook.app.shared import form
from scalebook.app.shared.words import scaled_words
from scalebook.training.config.classes import mapping
from scalebook.training.config.description import Description, Field
from scalebook.training.config.rate_scaling import FIELDS, KEY, rate_scaling
from scalebook.training.config.workload import workload

DrawField = Callable[[str, Field, str], Any]
"""Draws the field at a dotted path under a label, writes what it says into the config, and returns it."""

RULE, PER, WARMUP = (replace(FIELDS[0], default="none"), *FIELDS[1:])
"""Here a config without the key means `none`."""

AS_TEXT: Final = Field(KEY, "json", "A mapping with rule, per and warmup_epochs.", nullable=True)
NOISE_SCALE: Final = Field(
    "noise_scale",
    "bool",
    "Estimates, during training, the largest batch size that is still efficient. Costs a few percent of the time.",
    default=False,
)


def draw(config: form.Config, description: Description, field: DrawField) -> None:
    """The whole section. A config in which no scaling is chosen gets no `lr_scaling` key."""
    left, middle, right = st.columns([2, 1, 1])
    with left:
        scales = _rule(config, field)
    if scales:
        with middle:
            field(f"{KEY}.per", PER, "Reference batch, samples")
        with right:
            field(f"{KEY}.warmup_epochs", WARMUP, "Warm-up, epochs")
        if words := scaled_words(workload(config, description), rate_scaling(config)):
            st.caption(words)
    field("noise_scale", NOISE_SCALE, "Measure the gradient noise scale")


def _rule(config: form.Config, field: DrawField) -> bool:
    """The choice of a rule; whether there is anything more to say. What is no mapping is shown as text."""
    written = config.get(KEY)
    if written is not None and not isinstance(written, dict):
        field(KEY, AS_TEXT, "Scaling with batch size")
        return False
    rule = mapping(written).get("rule")
    if written is not None and rule is None:
        form.put(config, f"{KEY}.rule", FIELDS[0].default)
    if field(f"{KEY}.rule", RULE, "Scaling with batch size") != "none":
        return True
    if rule == "none":
        form.put(config, f"{KEY}.rule", rule)  # as it is written
    else:
        form.drop(config, KEY)
    return False
