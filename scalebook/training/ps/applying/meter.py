"""What one shard counts of the gradients that it applies: how many, how stale, how old, how far it moved meanwhile."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from scalebook.training.ps.applying.tables import Tables
from scalebook.training.ps.memory.region import (
    AGE,
    APPLIED,
    BINS,
    DRIFT,
    DRIFTS,
    DUPLICATES,
    FIRST_BIN,
    GAUGE,
    METER,
    ShardCounters,
)
from scalebook.training.ps.trace import Origin


class PushMeter:
    """By worker, in memory that all processes see. `views`: the shard's parameters by buffer; `drift`: whether it is
    measured; `now`: the run's clock, s. Written by who is `Shard.applying`."""

    def __init__(
        self,
        counters: ShardCounters,
        views: Sequence[Sequence[Tensor]],
        tables: Tables | None,
        drift: bool,
        now: Callable[[], float],
    ) -> None:
        self._counters, self._views, self._tables, self._measures_drift, self._now = counters, views, tables, drift, now

    def duplicate(self, origin: Origin) -> None:
        """It came a second time."""
        self._counters.meters[origin.worker * METER + DUPLICATES] += 1

    def drifts(self, newest: int, origins: Sequence[Origin]) -> list[float]:
        """Before an update: ||w - w_base|| of each gradient, Euclidean, over the shard; empty where not measured.
        `newest`: the buffer that has the newest version."""
        return [self._drift(newest, origin) for origin in origins] if self._measures_drift else []

    def applied(self, version: int, origins: Sequence[Origin], drifts: Sequence[float]) -> None:
        """These gradients have been applied to `version`."""
        meters, gauges, time_s = self._counters.meters, self._counters.gauges, self._now()
        for origin in origins:
            row = origin.worker * METER
            meters[row + APPLIED] += 1
            meters[row + FIRST_BIN + min(version - origin.base_version, BINS - 1)] += 1
            gauges[origin.worker * GAUGE + AGE] += time_s - origin.pulled
        for origin, drift in zip(origins, drifts, strict=False):
            gauges[origin.worker * GAUGE + DRIFT] += drift
            gauges[origin.worker * GAUGE + DRIFTS] += 1

    def _drift(self, newest: int, origin: Origin) -> float:
        if newest == origin.base_buffer:
            return 0.0
        pairs = zip(self._views[newest], self._views[origin.base_buffer], strict=True)
        drift = float(torch.stack([torch.dist(a.float(), b.float()) for a, b in pairs]).norm())
        return drift if self._tables is None else math.hypot(drift, self._tables.moved(origin.base_version))
