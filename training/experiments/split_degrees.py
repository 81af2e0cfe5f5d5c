"""How a model is split over workers: whether the degrees of `ModelParallel` make its workers, and go together."""

from typing import Final

from scalebook.training.engine.rules import ArgumentError
from scalebook.training.experiments.pipeline_order import Schedule

PRECISIONS: Final = ("32-true", "bf16-mixed", "bf16-true", "16-true", "32", "bf16", 32)
"""`trainer.precision` of a model that is split; Lightning refuses the others, without a key."""


EACH: Final = 4
"""Microbatches for each stage, where nobody says how many: stages are idle for less than a fifth of the time."""


def microbatches_of(stages: int, microbatches: int | None) -> int:
    """How many microbatches a batch is divided into."""
    return EACH * stages if microbatches is None else microbatches


def refuse_degrees(
    tensor: int,
    shard: int | None,
    workers: int,
    stages: int = 1,
    microbatches: int | None = None,
    schedule: Schedule = "1f1b",
) -> None:
    """ArgumentError if `workers`, on all nodes, are not tensor x shard, or stages x any number; a `shard` of None takes
    what `tensor` leaves."""
    if stages > 1:
        _refuse_stages(tensor, shard or 1, workers, stages, microbatches, schedule)
        return
    if microbatches is not None:
        raise ArgumentError(
            "no-effect", "microbatches", "has no effect without stages", "Set stages: 2 or more, or leave it out."
        )
    if workers % tensor == 0 and shard in (None, workers // tensor):
        return
    written = f"tensor {tensor}" + ("" if shard is None else f" x shard {shard}")
    raise ArgumentError(
        "contradiction",
        "tensor",
        f"{written} does not match the {workers} workers of trainer.devices x trainer.num_nodes",
        f"Set trainer.devices: {tensor * (shard or 1)}, or leave shard out and choose a tensor that divides {workers}.",
    )


def _refuse_stages(
    tensor: int, shard: int, workers: int, stages: int, microbatches: int | None, schedule: Schedule
) -> None:
    if tensor > 1 or shard > 1:
        degrees = {"tensor": tensor, "shard": shard}
        written = " x ".join(f"{name} {degree}" for name, degree in degrees.items() if degree > 1)
        raise ArgumentError(
            "contradiction",
            "stages",
            f"cannot be combined with {written}, because with stages, each worker has whole layers",
            "Use either stages alone, or tensor and shard without stages. With stages, additional workers form more "
            "pipelines, which compute other batches.",
        )
    if workers % stages:
        raise ArgumentError(
            "contradiction",
            "stages",
            f"{workers} workers (trainer.devices x trainer.num_nodes) are not a multiple of stages {stages}",
            f"Set trainer.devices: {stages * -(-workers // stages)}, or a number of stages that divides {workers}.",
        )
    if schedule == "1f1b" and microbatches_of(stages, microbatches) < stages:
        raise ArgumentError(
            "contradiction",
            "microbatches",
            f"1f1b needs a microbatch for each stage, but there are only {microbatches} microbatches for {stages} "
            "stages",
            f"Set microbatches: {EACH * stages}, or schedule: gpipe.",
        )
