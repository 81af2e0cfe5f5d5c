"""Time to a target against workers: how many updates it takes, times how long an update takes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scalebook.training.durations import roughly
from scalebook.training.export.drawing import ValueAxis, frame, margin, text, whole
from scalebook.training.planning.answer import Reliability


@dataclass(frozen=True)
class TargetPoint:
    """So many workers. `updates`: to the target, the mean of the seeds; None where one of them missed it."""

    workers: int
    updates: float | None
    updates_per_s: float

    @property
    def seconds(self) -> float | None:
        """To the target."""
        return None if self.updates is None else self.updates / self.updates_per_s


@dataclass(frozen=True)
class TargetAnswer:
    """Of one rule, all else as in the config. `runs`: the MLflow runs that were made for it."""

    metric: str
    target: float
    rule: str
    network: str
    seeds: int
    points: list[TargetPoint]
    runs: list[str]


def target_lines(found: TargetAnswer, reliability: Reliability) -> list[str]:
    """A table of both factors, and what follows."""
    lines = [
        f"To {found.metric} {found.target:g} under {found.rule}, at the config's own learning rate:",
        "workers   updates needed   updates/s   time      of one worker's",
    ]
    first = next((point for point in found.points if point.seconds is not None), None)
    for point in found.points:
        if point.seconds is None or first is None or first.seconds is None:
            lines.append(f"{point.workers:7d} {'not reached':>16} {point.updates_per_s:>11.4g}")
            continue
        share = f"{point.seconds / first.seconds:.2f}" if first.workers == 1 else ""
        factors = f"{point.updates:>16,.0f} {point.updates_per_s:>11.4g}"
        lines.append(f"{point.workers:7d} {factors}   {roughly(point.seconds):<9} {share}")
    return [*lines, target_words(found, reliability)]


def target_words(found: TargetAnswer, reliability: Reliability) -> str:
    """Which number of workers gets there first, and what the two factors do."""
    there = [point for point in found.points if point.seconds is not None]
    if not there:
        return "No number of workers reached it. Train longer, or lower the target."
    best = min(there, key=lambda point: point.seconds or 0.0)
    first, best_s = there[0], best.seconds
    assert best_s is not None
    rates = reliability.updates_per_s
    fast, slow = (1 / rate for rate in reversed(rates.likely(1.0)))
    many = f"{best.workers} workers are" if best.workers > 1 else "1 worker is"
    said = f"{many} there first, in {roughly(best_s * fast)} to {roughly(best_s * slow)}."
    if best is first or first.updates is None or best.updates is None:
        return said
    speed = best.updates_per_s / first.updates_per_s
    low, high = rates.likely_ratio(speed)
    return (
        f"{said} Against {first.workers}: {speed:.2g} times the updates a second ({low:.2g} to {high:.2g}), and "
        f"{best.updates / first.updates:.2g} times as many of them."
    )


# --- the chart -------------------------------------------------------------------------------------------------------

PANEL, HEIGHT, GAP = 250.0, 190.0, 18.0


def target_chart(found: TargetAnswer) -> str:
    """Three panels: updates needed, seconds of an update, and their product; SVG. "" where nothing was reached."""
    panels = _panels(found)
    if not panels:
        return ""
    parts, left = [], 0.0
    for number, (title, points) in enumerate(panels):
        up, across = ValueAxis([y for _, y in points], log=True), ValueAxis([x for x, _ in points], log=True)
        box = (left + margin(up.ticks()), 30.0, PANEL - margin(up.ticks()), HEIGHT)
        parts.append(frame(box, [(across.position(x), f"{x:g}") for x, _ in points], up.ticks()))
        places = [(box[0] + box[2] * across.position(x), box[1] + HEIGHT * (1 - up.position(y))) for x, y in points]
        parts.append(f'<path d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in places)}" class="line c{number}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" class="line c{number} dot"/>' for x, y in places]
        parts.append(text(box[0], 16, title, "start", "name"))
        parts.append(text(box[0] + box[2] / 2, box[1] + HEIGHT + 34, "workers", "middle", "tick"))
        left += PANEL + GAP
    return whole(parts, HEIGHT + 74, f"time to {found.metric} {found.target:g} against workers", width=left)


def save_target_figure(found: TargetAnswer, path: Path, style: str) -> None:
    """As `.svg`, with `style` in it, or `.png`."""
    if path.suffix == ".svg":
        path.write_text(target_chart(found).replace(">", f"><style>{style}</style>", 1), encoding="utf-8")
        return
    from matplotlib.figure import Figure  # 0.4 s, and only pictures need it

    figure = Figure(figsize=(9.0, 3.0), dpi=140, layout="constrained")
    panels = _panels(found)
    for axes, (title, points) in zip(figure.subplots(1, 3), panels, strict=False):
        axes.plot([x for x, _ in points], [y for _, y in points], "o-")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks([x for x, _ in points], [f"{x:g}" for x, _ in points])
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("workers", fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def _panels(found: TargetAnswer) -> Sequence[tuple[str, list[tuple[float, float]]]]:
    there = [
        (float(point.workers), point.updates, point.seconds)
        for point in found.points
        if point.updates is not None and point.seconds is not None
    ]
    if not there:
        return []
    return [
        ("updates to the target", [(workers, updates) for workers, updates, _ in there]),
        ("seconds per update", [(workers, seconds / updates) for workers, updates, seconds in there]),
        ("seconds to the target", [(workers, seconds) for workers, _, seconds in there]),
    ]
