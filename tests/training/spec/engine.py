"""A parameter server whose rule and damping are classes, each with settings of its own, as a form sees it."""

from dataclasses import replace
from typing import Literal

from training.describe import with_bounds
from training.introspect import describe_class
from training.ps.damping import Damping, DampingName
from training.ps.rules import Rule, RuleName
from training.spec.description import Description


class AsyncPS:
    """Workers that share parameters.

    Args:
        rule: What is done with a gradient that arrives.
        damping: What staleness does to an update.
        workers: Worker processes.
        warmup_updates: Updates that worker 0 makes alone at first.
        shards: Parts.
        host: Where they are.
        overlap: Compute meanwhile.
        restarts: Of a lost worker.
    """

    def __init__(
        self,
        rule: RuleName | Rule = "async",
        damping: DampingName | Damping = "none",
        workers: int | None = None,
        warmup_updates: int = 0,
        shards: int = 1,
        host: Literal["inline", "process"] = "inline",
        overlap: bool = False,
        restarts: int = 0,
    ) -> None: ...


def with_engine(description: Description) -> Description:
    single, ddp, _ = description.strategies
    ours = describe_class(AsyncPS, "training.strategies.AsyncPS", "scalebook")
    ours = replace(ours, fields=[with_bounds(field) for field in ours.fields])
    return replace(description, strategies=[single, ddp, ours])
