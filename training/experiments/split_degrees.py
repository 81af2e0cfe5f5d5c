"""How a model is split over workers: whether the degrees of `ModelParallel` make its workers."""

from typing import Final

from scalebook.training.base.errors import ConfigError
from scalebook.training.engine.rules.contradictions import ARGUMENTS

PRECISIONS: Final = ("32-true", "bf16-mixed", "bf16-true", "16-true", "32", "bf16", 32)
"""`trainer.precision` of a model that is split; Lightning refuses the others, without a key."""


def refuse_degrees(tensor: int, shard: int | None, workers: int) -> None:
    """ConfigError if `workers`, on all nodes, are not tensor x shard; a `shard` of None takes what `tensor` leaves."""
    if workers % tensor == 0 and shard in (None, workers // tensor):
        return
    written = f"tensor {tensor}" + ("" if shard is None else f" x shard {shard}")
    raise ConfigError(
        f"{ARGUMENTS}.tensor",
        f"{written} is not the {workers} workers of trainer.devices x trainer.num_nodes",
        f"Write trainer.devices: {tensor * (shard or 1)}, or leave shard out and let tensor divide {workers}.",
    )
