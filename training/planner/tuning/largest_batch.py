"""`scalebook search largest-batch`: the largest batch that fits into memory, under the config's own
strategy; a line for each try, and the answer."""

import sys
from collections.abc import Sequence
from typing import Final, TextIO

from scalebook.training.base import MB, ConfigError, FailureClass, available_bytes, processes, trust
from scalebook.training.base.files import CommandParser
from scalebook.training.experiments import Experiment, command_line
from scalebook.training.jobs import supervisor_handle
from scalebook.training.planner.tuning.batch_tries import BatchTries, Bracket, TryResult
from scalebook.training.planner.tuning.followed_job import INTERRUPTED
from scalebook.training.planner.tuning.tuning_config import prepared, whole_number
from scalebook.training.tracking import run_start

HEADER: Final = "  batch   global  result          ms/step  us/sample   samples/s  memory MB   left MB"
SATURATED: Final = 0.9
"""Share of the best throughput from which on a size counts as fast as any."""


def row(tried: TryResult) -> str:
    """One try, in the columns of `HEADER`."""
    result = tried.failure or "fits"
    rate = tried.samples_per_second
    cells = [
        "" if tried.step_s is None else f"{tried.step_s * 1e3:,.1f}",
        "" if rate is None else f"{1e6 / rate:,.1f}",
        "" if rate is None else f"{rate:,.0f}",
        "" if tried.memory_mb is None else f"{tried.memory_mb:,.0f}",
        "" if tried.free_mb is None else f"{tried.free_mb:,.0f}",
    ]
    widths = (9, 10, 11, 10, 9)
    figures = "".join(f" {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
    return f"{tried.batch_size:7,}  {tried.batch_size * tried.workers:7,}  {result:13}{figures}".rstrip()


def answer(done: Sequence[TryResult], bracket: Bracket, workers: int, memory_mb: int | None) -> str:
    """What fits, why no more, what it leaves, and where throughput saturates."""
    best = next((tried for tried in reversed(done) if tried.batch_size == bracket.fits and tried.failure is None), None)
    if best is None:
        smallest = min(tried.batch_size for tried in done) if done else bracket.multiple
        return f"No batch fits: even a batch of {smallest} per worker is too large. {_wall(done, memory_mb)}"
    lines = [f"Largest batch: {bracket.fits:,} samples per worker, {bracket.fits * workers:,} in total."]
    if bracket.too_large is not None:
        lines.append(f"{bracket.too_large:,} samples do not fit. {_wall(done, memory_mb)}")
    elif best.training_samples is not None and bracket.fits + bracket.multiple > best.training_samples // workers:
        lines.append(f"The limit is the training set, not memory: the set has {best.training_samples:,} samples.")
    else:
        lines.append("The search stopped at --most, before memory ran out.")
    if best.free_mb is not None:
        lines.append(
            f"The largest batch leaves {best.free_mb:,.0f} MB free "
            f"{'on the GPU' if memory_mb is None else 'in each process'}."
        )
    return " ".join(lines) + _saturation(done)


def _wall(done: Sequence[TryResult], memory_mb: int | None) -> str:
    hit = sum(tried.failure == FailureClass.OUT_OF_MEMORY for tried in done)
    where = "the GPU's memory" if memory_mb is None else f"{memory_mb:,} MB of memory"
    return f"{hit} of {len(done)} tries ran out of {where}."


def _saturation(done: Sequence[TryResult]) -> str:
    rates = {tried.batch_size: tried.samples_per_second for tried in done if tried.failure is None}
    measured = {size: rate for size, rate in rates.items() if rate is not None}
    if len(measured) < 2:
        return ""
    best = max(measured.values())
    enough = min(size for size, rate in measured.items() if rate >= SATURATED * best)
    return f"\nWith {enough:,} samples per worker, throughput is within 10 % of its maximum, {best:,.0f} samples/s."


MOST: Final = 65_536
UPDATES: Final = 3
SPARED: Final = 0.1
"""Share of the free memory that tries leave alone where --memory-mb does not say more."""


def parser() -> CommandParser:
    """That of `scalebook search largest-batch`."""
    parser = CommandParser(
        "scalebook search largest-batch",
        usage="scalebook search largest-batch -c FILE [options] [--KEY VALUE ...]",
        about="Find the largest batch that fits into memory.\n\n"
        "The test doubles the batch size until a try runs out of memory, then narrows the limit down by bisection. "
        "Each try trains a few updates in separate processes, with the strategy of the config, while no other runs "
        "train. Each try is recorded. On a GPU, the limit is the GPU's memory. The test also prints the time per "
        "sample at each size, which shows the size beyond which larger batches are no faster.\n\n"
        "Keys of the config follow as --KEY VALUE.",
        example="search largest-batch -c x.yaml --most 4096",
        page="concepts/search.md",
    )
    parser.add_argument("--most", metavar="N", help=f"largest batch size per worker to try (default: {MOST})")
    parser.add_argument("--multiple-of", metavar="N", help="try only multiples of this number (default: 1)")
    parser.add_argument("--updates", metavar="N", help=f"number of updates in each try (default: {UPDATES})")
    parser.add_argument(
        "--memory-mb", metavar="N",
        help="on a CPU: memory in MB that each process may use in addition to its memory at the start (default: an "
             "equal share of the free memory)",
    )  # fmt: skip
    parser.add_argument(*command_line.CONFIG_OPTIONS, metavar="FILE", help="config to test")
    parser.add_argument(trust.OPTION, action="store_true", help=trust.HELP)
    return parser


def main(argv: Sequence[str]) -> int:
    """Exit code: 0 with an answer, 1 without, 130 interrupted. ConfigError, before anything starts, for mistakes."""
    begun = prepared(argv, parser())
    if isinstance(begun, int):
        return begun
    workspace, description, line = begun
    most = whole_number(line.options, "--most", MOST) or MOST
    multiple = whole_number(line.options, "--multiple-of", 1) or 1
    updates = whole_number(line.options, "--updates", UPDATES, least=2) or UPDATES
    if multiple > most:
        raise ConfigError("--multiple-of", f"is {multiple}, which is more than --most {most}", "Lower it.")
    experiment = line.experiment(description)
    if experiment.batch.per_worker is None:
        raise ConfigError(
            "data",
            "has no batch_size to vary",
            "Choose a data set with a batch_size argument, or add this argument to your data set.",
        )
    tries = BatchTries(
        workspace.create(),
        experiment,
        updates,
        memory_mb(experiment, whole_number(line.options, "--memory-mb", None)),
    )
    with processes.sigterm_interrupts():
        return run(tries, Bracket(most, multiple), sys.stdout)


def memory_mb(experiment: Experiment, asked_mb: int | None) -> int | None:
    """Memory that each process of a try may take, MB: `asked_mb`, or its share of what is free now; None on a GPU."""
    from scalebook.training.jobs import this_machine

    if experiment.accelerator in ("gpu", "cuda") or (experiment.accelerator == "auto" and this_machine().gpus):
        if asked_mb is not None:
            raise ConfigError(
                "--memory-mb", "has no effect on a GPU, where the GPU's memory is the limit", "Remove it."
            )
        return None
    if asked_mb is not None or (free := available_bytes()) is None:
        return asked_mb
    return int(free * (1 - SPARED) / MB / experiment.strategy.processes)


def run(tries: BatchTries, bracket: Bracket, out: TextIO) -> int:
    """Try until the answer is known, print every try and the answer; whatever runs is ended when it is interrupted."""
    limit = "the GPU's memory" if tries.memory_mb is None else f"{tries.memory_mb:,} MB per process"
    strategy = tries.experiment.strategy
    _say(out, f"scalebook: largest batch, {strategy.name} × {strategy.workers}, within {limit}")
    done: list[TryResult] = []
    status = "stopped"
    with supervisor_handle.hold_supervisor(tries.workspace), run_start.submission(tries.workspace) as tags:
        tries.open_parent_run(tags)
        try:
            status = _search(tries, bracket, done, out)
        except KeyboardInterrupt:
            _say(out, f"\nInterrupted after {len(done)} tries.")
            return INTERRUPTED
        finally:
            tries.close_parent_run(status, done, bracket.fits if status == "finished" else None, strategy.workers)
    if status == "failed":
        _say(out, f"No answer: {done[-1].cause}. Log: `scalebook jobs log {done[-1].id[:8]}`.")
        return 1
    _say(out, answer(done, bracket, strategy.workers, tries.memory_mb))
    return 0 if bracket.fits else 1


def _search(tries: BatchTries, bracket: Bracket, done: list[TryResult], out: TextIO) -> str:
    _say(out, HEADER)
    while (size := bracket.next()) is not None:
        tried = tries.run(size)
        if tried.training_samples is not None:
            bracket.lower(tried.training_samples // tried.workers)
        if tried.failure == FailureClass.CONFIGURATION and size > bracket.most:
            continue  # the training set is smaller than the first try: begin again below it
        done.append(tried)
        _say(out, row(tried))
        if tried.failure not in (None, FailureClass.OUT_OF_MEMORY):
            return "failed"
        bracket.note_try(size, tried.failure is None)
    return "finished"


def _say(out: TextIO, text: str) -> None:
    out.write(f"{text}\n")
    out.flush()
