"""`scalebook search rates`: a learning-rate range test of a config, run as a job, shown as a curve and a suggestion."""

import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final, TextIO

from scalebook.training.base import ConfigError, Workspace, duration, processes, trust
from scalebook.training.base.files import CommandParser, records
from scalebook.training.experiments import Experiment, command_line
from scalebook.training.jobs import JobFolder, Result, job_requests, supervisor_handle
from scalebook.training.planner.tuning.followed_job import INTERRUPTED, follow
from scalebook.training.planner.tuning.rate_curve import RateCurve
from scalebook.training.planner.tuning.tuning_config import number, prepared, shorten_training, whole_number
from scalebook.training.tracking import names, run_start

WIDTH: Final = 64
HEIGHT: Final = 12
HEADROOM: Final = 0.5
"""Above the highest point of the first half, as a share of the fall: what explodes further is cut off."""


def plot(rates: Sequence[float], losses: Sequence[float], marks: Mapping[float, str]) -> list[str]:
    """Lines of at most 80 characters: losses by the logarithm of the rates; `marks`, rate -> one character, below."""
    low = min(losses)
    high = max(losses[: max(1, len(losses) // 2)])
    high += HEADROOM * (high - low) or abs(high) or 1.0
    rows = [[" "] * WIDTH for _ in range(HEIGHT)]
    for rate, loss in zip(rates, losses, strict=True):
        row = round((high - min(loss, high)) / (high - low) * (HEIGHT - 1))
        rows[row][_column(rate, rates)] = "*" if loss <= high else "^"
    axis = ["-"] * WIDTH
    for rate, mark in marks.items():
        axis[_column(rate, rates)] = mark
    lines = [f"{_plot_label(i, low, high)} |{''.join(row).rstrip()}" for i, row in enumerate(rows)]
    ends = f"{rates[0]:.1e}".ljust(WIDTH - 8) + f"{rates[-1]:.1e}".rjust(8)
    return [*lines, f"{'':8} +{''.join(axis)}", f"{'':8}  {ends}"]


def _column(rate: float, rates: Sequence[float]) -> int:
    whole = math.log(rates[-1] / rates[0]) or 1.0
    return round(math.log(rate / rates[0]) / whole * (WIDTH - 1))


def _plot_label(row: int, low: float, high: float) -> str:
    return f"{high - (high - low) * row / (HEIGHT - 1):8.3g}" if row % 3 == 0 or row == HEIGHT - 1 else " " * 8


LOWEST: Final = 1e-5
HIGHEST: Final = 10.0
UPDATES: Final = 200
LEAST_UPDATES: Final = 20
CALLBACK: Final = "scalebook.training.planner.tuning.rate_range.RateRange"
TEST: Final = "learning rates"
SAY_EVERY_S: Final = 5.0
FURTHER: Final = 1e3
"""The factor by which an end of the range is moved if the best rate is there."""
MOST_TESTS: Final = 3


def parser() -> CommandParser:
    """That of `scalebook search rates`."""
    parser = CommandParser(
        "scalebook search rates",
        usage="scalebook search rates -c FILE [options] [--KEY VALUE ...]",
        about="Find the largest learning rate at which a config still trains, by a learning-rate range test.\n\n"
        "The test trains the config from the start, with the config's strategy, and raises the learning rate with "
        "each update. It ends after the last update, or when the loss explodes (Smith 2017). It prints the loss for "
        "each rate, the rate at which the loss falls fastest, and the largest rate that still trains. If the best rate "
        "is at an end of the range, the test says so, and tests a wider range unless you set that end. The schedule, "
        "lr_scaling and budget of the config are ignored. Each run is recorded, with rates.json and rates.png.\n\n"
        "Keys of the config follow as --KEY VALUE.",
        example="search rates -c x.yaml --from 1e-4 --to 1",
        page="concepts/search.md",
    )
    parser.add_argument("--from", metavar="RATE", help=f"first learning rate (default: {LOWEST:g})")
    parser.add_argument("--to", metavar="RATE", help=f"last learning rate (default: {HIGHEST:g})")
    parser.add_argument("--updates", metavar="N", help=f"number of updates (default: {UPDATES})")
    parser.add_argument(*command_line.CONFIG_OPTIONS, metavar="FILE", help="config to test")
    parser.add_argument(trust.OPTION, action="store_true", help=trust.HELP)
    return parser


def main(argv: Sequence[str]) -> int:
    """Exit code: 0 with a suggestion, 1 without, 130 interrupted. ConfigError, before anything starts, for mistakes."""
    begun = prepared(argv, parser())
    if isinstance(begun, int):
        return begun
    workspace, description, line = begun
    lowest = number(line.options, "--from", LOWEST, 1e-30)
    highest = number(line.options, "--to", HIGHEST, 1e-30)
    updates = whole_number(line.options, "--updates", UPDATES, LEAST_UPDATES)
    assert lowest is not None and highest is not None and updates is not None  # noqa: PT018  # they have defaults
    if lowest >= highest:
        raise ConfigError("--to", f"is {highest:g}, which is not above --from {lowest:g}", "Raise it.")
    ends = {"lowest": lowest, "highest": highest}
    fixed = {end for end, option in (("lowest", "--from"), ("highest", "--to")) if option in line.options}
    with processes.sigterm_interrupts():
        for left in reversed(range(MOST_TESTS)):
            experiment = range_test(line.experiment(description), ends["lowest"], ends["highest"], updates)
            code, edge = run(workspace.create(), experiment, sys.stdout)
            if not edge or edge in fixed or not left:
                break
            ends[edge] *= FURTHER if edge == "highest" else 1 / FURTHER
            _say(sys.stdout, f"scalebook: testing again from {ends['lowest']:.2g} to {ends['highest']:.2g}")
    return code


def range_test(experiment: Experiment, lowest: float, highest: float, updates: int) -> Experiment:
    """The experiment of the test's job."""
    init_args = {"lowest": lowest, "highest": highest, "updates": updates}
    return shorten_training(experiment, updates, {"class_path": CALLBACK, "init_args": init_args})


def run(workspace: Workspace, experiment: Experiment, out: TextIO) -> tuple[int, str]:
    """Run the test, print what it found. Ends the job when it is interrupted. The exit code, and the end of the range
    that the best rate is at, "" if at none."""
    with supervisor_handle.hold_supervisor(workspace):
        (job,) = job_requests.submit(workspace, experiment, seeds=experiment.seeds(1))
        run_start.open_store(workspace).set_tag(job.id, names.TAG_TEST, TEST)
        strategy = experiment.strategy
        _say(out, f"scalebook: learning-rate range test {job.id[:8]}, {strategy.name} × {strategy.workers}")
        try:
            result = follow(workspace, job, _Progress(out))
        except KeyboardInterrupt:
            _say(out, f"\nInterrupted: {job.id[:8]} {job.state()}.")
            return INTERRUPTED, ""
    return _report(job, result, out)


def curve_of(job: JobFolder) -> RateCurve | None:
    """What the test of an ended job found; None where it did not get that far."""
    return records.peek(job.path / names.RATES_JSON, RateCurve)


def _report(job: JobFolder, result: Result, out: TextIO) -> tuple[int, str]:
    curve = curve_of(job)
    if result.status == "failed" or curve is None or not curve.rates:
        why = result.why or "it left no result"
        _say(out, f"The test {result.status}. {why.rstrip('.')}. {result.advice}".rstrip())
        _say(out, f"Log: `scalebook jobs log {job.id[:8]}`.")
        return 1, ""
    suggestion = curve.suggestion()
    marks = {rate: mark for rate, mark in ((suggestion.largest, "|"), (suggestion.steepest, "v")) if rate is not None}
    _say(out, "\n".join(plot(curve.rates, curve.smoothed(), marks)))
    _say(out, f"{suggestion.sentence(curve)} ({len(curve.rates)} points; in MLflow: {job.id[:8]})")
    return (0 if suggestion.steepest is not None else 1), suggestion.edge


class _Progress:
    """Says now and then how far the test is."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._begun, self._said = out, time.monotonic(), time.monotonic()

    def __call__(self, job: JobFolder, reason: str) -> None:
        now = time.monotonic()
        if now - self._said < SAY_EVERY_S:
            return
        self._said = now
        progress = job.progress()
        words = f"waits: {reason}" if reason else f"{progress.updates if progress else 0:,} updates"
        _say(self._out, f"  {words} after {duration(now - self._begun)}")


def _say(out: TextIO, text: str) -> None:
    out.write(f"{text}\n")
    out.flush()
