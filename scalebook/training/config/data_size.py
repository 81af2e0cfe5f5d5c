"""How many samples a run trains on, as far as a config says."""

from collections.abc import Mapping
from typing import Any, Final

from scalebook.training.config.classes import mapping, named
from scalebook.training.config.description import Description

IMAGES: Final = {"Digits": 1797}
"""Of the data sets that ship, before the validation part is taken out."""


def most_samples(config: Mapping[str, Any], description: Description) -> int | None:
    """Not fewer than a complete config trains on, of a data set that ships; None where its size is not known."""
    reference = named(config.get("data"))
    info = reference.info("data", description)
    if info is None or info.source != "scalebook":
        return None
    return _least(IMAGES.get(info.name), mapping(reference.args).get("limit"))


def training_samples(config: Mapping[str, Any], description: Description) -> int | None:
    """About as many as a complete config trains on; None where the data set does not say."""
    reference = named(config.get("data"))
    info, args = reference.info("data", description), mapping(reference.args)
    held_out = args.get("val_fraction")
    known = IMAGES.get(info.name) if info is not None and info.source == "scalebook" else None
    if known is not None and isinstance(held_out, int | float):
        known = int(known * (1 - held_out))
    return _least(known, args.get("limit"))


def _least(known: int | None, limit: Any) -> int | None:
    told = limit if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0 else None
    return min((number for number in (known, told) if number is not None), default=None)
