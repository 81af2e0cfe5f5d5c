"""Whether a run asks for so much more than the machine has that a person should say so twice."""

from typing import Final

from scalebook.training.config.workload import Workload

MOST_A_CORE: Final = 8
"""Threads that share a core before that is taken for a slip: some experiments crowd a machine on purpose."""


def crowd_words(load: Workload, cores: int) -> str:
    """`1,000 workers on 2 cores: ...`; "" where they have room enough, or crowd it no more than is often wanted."""
    threads = load.processes * load.threads
    if threads <= MOST_A_CORE * cores:
        return ""
    each = f" with {load.threads} threads each" if load.threads > 1 else ""
    return (
        f"{load.workers:,} workers{each} on {cores} {'core' if cores == 1 else 'cores'}: about {threads // cores:,} "
        "would take turns on each, and every worker takes memory of its own."
    )
