"""The config's `lr_scaling`: how the batch size scales the learning rate."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, get_args

from scalebook.training.experiments.description import Field

Rule = Literal["linear", "sqrt", "none"]
RULES: Final[tuple[Rule, ...]] = get_args(Rule)
KEY: Final = "lr_scaling"
NO_BATCH: Final = "needs a batch size, but the data set has no `batch_size`"


@dataclass(frozen=True)
class RateScaling:
    """The learning rate is per `per` samples: with n samples averaged into a gradient it is multiplied by a factor.

    Args:
        rule: `linear`: n/per (Goyal et al. 2017, section 2.1). `sqrt`: its square root, which keeps the variance of an
            update as it is (Krizhevsky 2014, section 5). `none`: 1.
        per: Samples that the learning rate is asked for.
        warmup_epochs: Epochs, of the data that all workers see, over which the learning rate rises from the one asked
            for to the scaled one, by the same amount with each update (Goyal et al. 2017, section 2.2). A rate that
            scaling makes smaller is not warmed up.
    """

    rule: Rule = "linear"
    per: int = 256
    warmup_epochs: float = 0.0

    def factor(self, samples: int) -> float:
        """What the learning rate is multiplied by when gradients are means over `samples` samples."""
        ratio = samples / self.per
        return {"linear": ratio, "sqrt": math.sqrt(ratio), "none": 1.0}[self.rule]

    def warmed(self, samples: int, epochs: float) -> float:
        """The factor after `epochs` of training: from 1 up to `factor`, or that at once."""
        factor = self.factor(samples)
        if factor <= 1 or epochs >= self.warmup_epochs:
            return factor
        return 1 + (factor - 1) * epochs / self.warmup_epochs

    def written(self) -> dict[str, Any]:
        """The scaling as a config says it, with every key."""
        return asdict(self)


FIELDS: Final = (
    Field(
        "rule", "enum", "How the learning rate follows the batch size.", default="linear", choices=list(RULES),
    ),
    Field("per", "int", "Batch size, in samples, that the learning rate is meant for.", default=256, minimum=1),
    Field(
        "warmup_epochs", "float", "Epochs over which the learning rate rises to its scaled value, update by update.",
        default=0.0, minimum=0,
    ),
)  # fmt: skip
"""The keys below `lr_scaling`, for form and validation."""


def read_scaling(settings: object) -> RateScaling | None:
    """The scaling that a config writes, with defaults; None if there is none, or it is invalid (validation reports
    that)."""
    if not isinstance(settings, Mapping):
        return None
    rule, per, warmup = (settings.get(field.name, field.default) for field in FIELDS)
    valid = rule in RULES and isinstance(per, int) and isinstance(warmup, int | float)
    if not valid or isinstance(per, bool) or isinstance(warmup, bool) or per < 1 or not 0 <= warmup < math.inf:
        return None
    return RateScaling(rule, per, float(warmup))
