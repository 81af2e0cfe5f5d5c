"""One line for each run while a notebook runs: rewritten in place on a terminal, new lines elsewhere."""

import shutil
import time
from collections.abc import Mapping, Sequence
from typing import Final, TextIO

from scalebook.training.base import duration
from scalebook.training.base.files import terminal
from scalebook.training.jobs import ENDED, JobFolder, State
from scalebook.training.notebook import count
from scalebook.training.tracking import names

BAR: Final = 10
PLAIN_EVERY_S: Final = 10.0
"""Interval between two lines about an active run, if the output is not a terminal."""


class RunLines:
    """Shows `jobs` on `out`. `metrics`: the metric to show, by job id. Not thread-safe."""

    def __init__(self, out: TextIO, jobs: Sequence[JobFolder], metrics: Mapping[str, str]) -> None:
        self.out, self.jobs, self.metrics = out, list(jobs), metrics
        self.live = out.isatty()
        self._width = max((len(job.request().title) for job in jobs), default=0)
        self._drawn = 0  # lines on the terminal that the next drawing replaces
        self._said: dict[str, tuple[State, float]] = {}  # by job: what the last plain line said, and when

    def draw(self, states: Mapping[str, State], reasons: Mapping[str, str]) -> None:
        """Draw all runs; if the output is not a terminal, print those that have news."""
        if self.live:
            self._redraw(states, reasons)
        else:
            self._print_news(states, reasons)

    def print_line(self, text: str) -> None:
        """Print a line below the runs, which stays."""
        self.out.write(f"{text}\n")
        self.out.flush()
        self._drawn = 0

    def _redraw(self, states: Mapping[str, State], reasons: Mapping[str, str]) -> None:
        columns, rows = shutil.get_terminal_size()
        jobs = self._most_interesting(states, rows - 2)
        lines = [
            terminal.visible(self.line(job, states[job.id], reasons.get(job.id, "")))[: columns - 1] for job in jobs
        ]
        if len(jobs) < len(self.jobs):
            lines.append(f"... and {len(self.jobs) - len(jobs)} more"[: columns - 1])
        up = f"\x1b[{self._drawn}F" if self._drawn else ""
        terminal.draw(self.out, up + "".join(f"\x1b[2K{line}\n" for line in lines) + "\x1b[J")
        self.out.flush()
        self._drawn = len(lines)

    def _most_interesting(self, states: Mapping[str, State], most: int) -> list[JobFolder]:
        """All jobs if they fit; else the running, failed and waiting ones first, in the order of `jobs`."""
        if len(self.jobs) <= most:
            return self.jobs
        rank = {"running": 0, "stopping": 0, "failed": 1, "waiting": 2}
        chosen = sorted(self.jobs, key=lambda job: rank.get(states[job.id], 3))[: max(1, most - 1)]
        return [job for job in self.jobs if job in chosen]

    def _print_news(self, states: Mapping[str, State], reasons: Mapping[str, str]) -> None:
        now = time.monotonic()
        for job in self.jobs:
            state = states[job.id]
            before, when = self._said.get(job.id, (None, 0.0))
            due = now - when >= PLAIN_EVERY_S and state not in (*ENDED, "waiting")
            if state != before or due:
                self._said[job.id] = (state, now)
                self.out.write(f"{self.line(job, state, reasons.get(job.id, ''))}\n")
        self.out.flush()

    def line(self, job: JobFolder, state: State, reason: str = "") -> str:
        """One run, for 80 columns: `NAME  ████------  38 %  12 s left  accuracy 0.964  1,240 updates in 12 s`."""
        name = job.request().title.ljust(self._width)
        progress = job.progress()
        if state == "waiting":
            return f"{name}  {'-' * BAR}  waiting{f': {reason}' if reason else ''}"
        fraction = 1.0 if state == "finished" else (progress.fraction if progress else 0.0)
        words = [name, bar(fraction, self.out.encoding), "    " if fraction is None else f"{fraction * 100:3.0f} %"]
        left = progress.left_s if progress and state == "running" else None
        words.append((state if left is None else f"{duration(left)} left").ljust(9))
        if progress is not None:
            metric = next(
                (metric for metric in (self.metrics.get(job.id, ""), names.TRAIN_LOSS) if metric in progress.metrics),
                "",
            )
            text = f"{metric.removeprefix('val/')} {progress.metrics[metric]:.4g}" if metric else ""
            words.append(text.ljust(20))
            words.append(f"{count(progress.updates)} updates in {duration(progress.seconds)}")
        if still := job.stands_still():
            words.append(still)
        result = job.outcome()
        if result is not None and result.why:
            words.append(result.why)
        if lost := sorted({worker.worker for worker in job.lost_workers()}):
            words.append(f"lost worker {', '.join(map(str, lost))}")
        return "  ".join(words).rstrip()


def bar(fraction: float | None, encoding: str | None) -> str:
    """A bar of `BAR` characters; empty if the budget has no limit."""
    full = round((fraction or 0.0) * BAR)
    mark = "█" if (encoding or "").lower().replace("-", "") == "utf8" else "#"
    return mark * full + "-" * (BAR - full)
