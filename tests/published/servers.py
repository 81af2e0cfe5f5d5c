"""Speed-ups of asynchronous training on parameter servers.

Facts that are not public are assumed, the same for all: every machine has 10 Gbit/s Ethernet, 17
servers have a machine each, a server moves 10 GB/s in memory and passes it three times for a push, a GPU of that time
(K40, 4.29 TFLOP/s) reaches a third of its peak, and gradients of equal workers scatter by 10 %. Published speed-ups do
not name the rule; `sync` and `async` are both simulated, and a published number is met when it is between the two, each
widened by the range of its kind over a network, from profiles without `software`. A speed-up is over one worker
without a parameter server. Models' parameters and multiply-adds, and what Chen et al. measured, are quoted from memory
of the papers.
"""

import math
import random
import statistics
from dataclasses import dataclass
from typing import Any, Final

from scalebook.training.engine.rules.clock_settings import Distribution, Link
from scalebook.training.engine.rules.update_rules import Async, Sync
from scalebook.training.engine.sim.sim_clock import DRAWS
from scalebook.training.planner.play import play
from scalebook.training.planner.reliability import read_comparisons
from scalebook.training.pricing.links import NETWORKS, Network
from scalebook.training.pricing.profile import COPY_BANDWIDTH, PASSES, Profile
from tests.published.rows import Report

FLOPS: Final = 4.29e12 / 3
SERVERS: Final = 17
CV: Final = 0.1
PCIE: Final = Network(Link(1e-5, 1.2e10), Link(0.0, 1.2e10))
TALK: Final = "J. Dean, as quoted in A. Geron, Hands-On Machine Learning (2017), chapter 12"
BLOG: Final = "Announcing TensorFlow 0.8, Google Research blog, April 2016"


@dataclass(frozen=True)
class System:
    """One published number. `macs`: multiply-adds of a forward pass; a step takes six floating point operations each.

    `facts` are public; `assumed` is ours, beside the common assumptions.
    """

    name: str
    workers: int
    published: tuple[float, float]
    source: str
    facts: str
    assumed: str
    batch: int
    gradient_s: float
    push_bytes: float
    shards: int = SERVERS
    network: Network = NETWORKS["10gbe"]

    @property
    def profile(self) -> Profile:
        return Profile(
            Distribution("lognormal", self.gradient_s, CV),
            self.batch,
            self.push_bytes,
            self.push_bytes,
            PASSES * self.push_bytes / COPY_BANDWIDTH,
            network=self.network,
            server_machines="one" if self.shards == 1 else "each",
        )


def step_s(macs: float, batch: int) -> float:
    """Seconds of forward and backward: two operations per multiply-add, and twice as many backward as forward."""
    return 6 * macs * batch / FLOPS


_SEQ2SEQ: Final = (
    "Sutskever 2014: 384M parameters, of which 64M recurrent and 80M softmax; batch 128; 1,700 words/s on one GPU; "
    "WMT'14: 54 words a pair"
)
_INCEPTION: Final = "Szegedy 2015: 24M parameters, 5.7G multiply-adds; batch 32, K40 (Chen 2016)"
SYSTEMS: Final = (
    System(
        "translation, 8 GPUs", 8, (6, 6), TALK, _SEQ2SEQ,
        "that it was this model; one machine, PCIe of 12 GB/s, one server; embeddings travel as the rows of a batch",
        128, 128 * 54 / 1700, 4 * (64e6 + 80e6 + 128 * 54 * 1000), 1, PCIE,
    ),
    System("Inception, 50 GPUs", 50, (32, 32), TALK, _INCEPTION, "", 32, step_s(5.7e9, 32), 4 * 24e6),
    System("Inception, 100 GPUs", 100, (56, 56), BLOG, _INCEPTION, "", 32, step_s(5.7e9, 32), 4 * 24e6),
    System(
        "dense, 50: AlexNet", 50, (25, 40), TALK, "61M parameters, 0.72G multiply-adds",
        "that it is one of them; batch 128", 128, step_s(0.72e9, 128), 4 * 61e6,
    ),
    System(
        "dense, 50: VGG-16", 50, (25, 40), TALK, "138M parameters, 15.5G multiply-adds",
        "that it is one of them; batch 32", 32, step_s(15.5e9, 32), 4 * 138e6,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Played:
    """Speed-ups under both rules, and between which the published one must lie: both, `widened` by the range."""

    system: System
    under_sync: float
    under_async: float
    widened: tuple[float, float]

    @property
    def met(self) -> bool:
        (lowest, highest), (low, high) = self.system.published, self.widened
        return lowest <= high and highest >= low

    @property
    def figures(self) -> dict[str, Any]:
        public = ("name", "workers", "published", "facts", "assumed", "source")
        return {name: getattr(self.system, name) for name in public} | {
            "under_sync": self.under_sync, "under_async": self.under_async, "widened": self.widened, "met": self.met,
        }  # fmt: skip

    def __str__(self) -> str:
        low, high = self.system.published
        said = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        within = f"{self.widened[0]:.1f} to {self.widened[1]:.1f}"
        return (
            f"{self.system.name:<22} {said:>8} {self.under_sync:>6.1f} {self.under_async:>6.1f}   {within:<14} "
            f"{'met' if self.met else 'MISSED'}"
        )


def predicted(system: System, gradients: int | None = None) -> Played:
    """Simulate both rules."""
    profile = system.profile
    within_sync, within_async = (
        read_comparisons().of(rule, "network", complete=False).updates_per_s for rule in ("sync", "async")
    )
    alone = system.batch / profile.gradient_mean_s
    sync, free = (
        play(profile, system.workers, rule, system.shards, gradients=gradients).samples_per_s / alone
        for rule in (Sync(), Async())
    )
    ends = [*within_sync.likely(sync), *within_async.likely(free)]
    return Played(system, sync, free, (min(ends), max(ends)))


# --- Chen et al. 2016 ------------------------------------------------------------------------------------------------

WORKERS: Final = 100
LAST_IN_TIME: Final = 0.30
"""Share of the rounds whose 100th gradient arrives within 2 s (Chen et al. 2016, from memory, as the two below)."""
PUBLISHED_98TH: Final = 0.80
"""The same for the 98th, which is predicted."""
MEDIAN_S: Final = 1.55
"""Between 1.4 and 1.8 s, where most of the mean times lie."""
MEMORY: Final = "figures of Chen et al. and of models from memory of the papers"


def chen(rounds: int = 4000) -> tuple[float, list[float]]:
    """The share of rounds whose 98th gradient arrives within 2 s, and the mean time to the k-th, k = 1 to 100.

    Lognormal and independent, as the planner draws; the spread is set so that the last one is in time as often as
    published. So only the 98th is predicted.
    """
    each = LAST_IN_TIME ** (1 / WORKERS)  # of one gradient
    sigma = math.log(2.0 / MEDIAN_S) / statistics.NormalDist().inv_cdf(each)
    mean, cv = MEDIAN_S * 2.718281828 ** (sigma**2 / 2), (2.718281828 ** (sigma**2) - 1) ** 0.5
    draw = random.Random("published")
    ordered = [
        sorted(DRAWS["lognormal"](draw, Distribution("lognormal", mean, cv)) for _ in range(WORKERS))
        for _ in range(rounds)
    ]
    share = sum(times[97] <= 2.0 for times in ordered) / rounds
    return share, [statistics.fmean(times[k] for times in ordered) for k in range(WORKERS)]


def report() -> Report:
    rows = [predicted(system) for system in SYSTEMS]
    share, times = chen()
    off = share - PUBLISHED_98TH
    last = (
        f"Chen et al. 2016, 98th of 100 gradients within 2 s: published {PUBLISHED_98TH:.0%}, predicted {share:.0%} "
        f"({'met' if abs(off) <= 0.05 else 'MISSED'}: {off:+.0%}); mean time to the 50th {times[49]:.2f} s, 98th "
        f"{times[97]:.2f} s, last {times[99]:.2f} s ({MEMORY})"
    )
    chen_figures = {"published": PUBLISHED_98TH, "predicted": share, "source": MEMORY}
    head = "system                published   sync  async   within"
    return Report([head, *map(str, rows), last], {"systems": [row.figures for row in rows], "chen": chen_figures})
