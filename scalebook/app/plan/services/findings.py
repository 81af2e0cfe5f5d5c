"""An answer as lines of charts, rows of a table, and CSV."""

import csv
import io
from collections.abc import Sequence
from typing import Final

from scalebook.training.planning.answer import Answer, Curve, Point
from scalebook.training.planning.links import WORDS

COLUMNS: Final = (
    "workers", "updates_per_s", "samples_per_s", "speedup", "compute", "communicate", "idle", "staleness",
    "staleness_p95", "dropped", "server_busy", "in_busy", "out_busy", "memory",
)  # fmt: skip


def names(curves: Sequence[Curve]) -> list[str]:
    """What tells each curve from the others: its rule, and what else differs."""
    several_shards = len({curve.shards for curve in curves}) > 1
    several_networks = len({curve.network for curve in curves}) > 1
    return [
        " · ".join(
            [
                f"{curve.rule} (the config's)" if curve.own else curve.rule,
                *([f"{curve.shards} shard{'s' * (curve.shards > 1)}"] if several_shards else []),
                *([WORDS[curve.network]] if several_networks else []),
            ]
        )
        for curve in curves
    ]


def speedup(curve: Curve, point: Point) -> float:
    """Samples a second, in those of one worker."""
    return point.samples_per_s / curve.one_per_s


def as_csv(answer: Answer) -> str:
    """A line for each number of workers of each curve."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["rule", "shards", "network", *COLUMNS])
    for curve in answer.curves:
        for point in curve.points:
            values = {**vars(point), "speedup": speedup(curve, point)}
            writer.writerow([curve.rule, curve.shards, curve.network, *(f"{values[name]:.6g}" for name in COLUMNS)])
    return text.getvalue()
