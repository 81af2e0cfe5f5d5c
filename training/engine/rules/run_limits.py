"""How many workers a run may have while it trains, how often they restart, and how long they wait. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final

from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.rules.argument_limits import AtLeast, NonNegativeInt, PositiveFloat, check_limits
from scalebook.training.engine.rules.facts import RuleFacts

LIMITS: Final = "limits"
"""Where a config has them."""


@dataclass(frozen=True)
class Limits:
    """How often workers restart, and how long processes wait for each other.

    Args:
        restarts: How often dead workers restart in one run, counted over all workers. After that, training continues
            without a worker that dies. Worker 0 never restarts: its death ends the run.
        deadline_s: Seconds after which waiting for another process fails.
    """

    restarts: NonNegativeInt = 0
    deadline_s: PositiveFloat = 600.0

    def __post_init__(self) -> None:
        for name, kind, words in (("restarts", int, "a whole number"), ("deadline_s", int | float, "a number")):
            value = getattr(self, name)
            if not isinstance(value, kind) or isinstance(value, bool):
                raise ArgumentError(
                    "wrong-type", f"{LIMITS}.{name}", f"is {value!r}, not {words}", f"Use {words}, or remove the key."
                )
        check_limits(Limits, vars(self), LIMITS)


USUAL: Final = Limits()


def read_limits(written: object) -> Limits:
    """The limits that a config writes as `{restarts: 2}`; ArgumentError for anything else."""
    if isinstance(written, Limits):
        return written
    if not isinstance(written, Mapping):
        raise ArgumentError(
            "wrong-type", LIMITS, f"is {written!r}, not a mapping", "Use the form {restarts: 2, deadline_s: 60}."
        )
    known = [field.name for field in fields(Limits)]
    for name in written:
        if name not in known:
            raise ArgumentError(
                "unknown-key", f"{LIMITS}.{name}", "is not one of the limits", f"Use {' or '.join(known)}."
            )
    given: dict[str, Any] = {str(name): value for name, value in written.items()}
    return Limits(**given)


WORKERS: Final = "workers"


@dataclass(frozen=True)
class WorkerRange:
    """Limits for the number of workers on all nodes together. Nodes may join and leave while others train.

    Args:
        min: Training begins with this many workers, and ends if there are fewer for 30 s.
        max: At most this many workers take part. It must equal devices times num_nodes.
    """

    min: Annotated[int, AtLeast(1)]
    max: Annotated[int, AtLeast(1)]

    def __post_init__(self) -> None:
        check_limits(WorkerRange, vars(self), WORKERS)
        if self.max < self.min:
            raise ArgumentError(
                "out-of-bounds",
                f"{WORKERS}.max",
                f"is {self.max}, which is less than min ({self.min})",
                f"Use {self.min} or more.",
            )


def read_range(written: object) -> WorkerRange:
    """The range that a config writes as `{min: 2, max: 8}`; ArgumentError for anything else."""
    ends = [written.get(name) for name in ("min", "max")] if isinstance(written, Mapping) else []
    numbers = [one for one in ends if isinstance(one, int) and not isinstance(one, bool)]
    if len(numbers) != 2 or not isinstance(written, Mapping) or set(written) != {"min", "max"}:
        raise ArgumentError(
            "wrong-type",
            WORKERS,
            f"is {written!r}, not a number of workers",
            "Use a whole number of at least 1, or {min: 2, max: 8}.",
        )
    return WorkerRange(*numbers)


def misfit(
    elastic: WorkerRange, on_each: int, nodes: int, rule: RuleFacts, settings: Mapping[str, Any]
) -> ArgumentError | None:
    """Why a run of so many workers on each of so many machines cannot have these; None where it can.

    Under a rule whose updates average as many gradients as there are workers, batch, learning rate and number of
    updates would follow who happens to be there.
    """
    if nodes == 1:
        return ArgumentError(
            "contradiction",
            "workers",
            "is {min, max}, but trainer.num_nodes is 1, so no worker can join",
            "Use a number, or set num_nodes to the number of nodes that may take part.",
        )
    if elastic.max != on_each * nodes:
        why = f"is {elastic.max}, but {nodes} nodes with {on_each} workers each make {on_each * nodes} workers"
        return ArgumentError(
            "contradiction", "workers.max", why, f"Use {on_each * nodes}, or change devices or num_nodes."
        )
    if rule.averaged(elastic.min, settings) != rule.averaged(elastic.max, settings):
        return ArgumentError(
            "contradiction",
            "workers",
            f"is {{min, max}}, but an update of {rule.name} averages one gradient per worker, so the batch size would "
            "change whenever a worker joins or leaves",
            "Use a number, or set rule: async, bounded or softsync.",
        )
    return None
