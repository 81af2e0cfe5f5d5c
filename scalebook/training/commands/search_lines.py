"""A search on the terminal: a line that is drawn anew while it runs, and a table of what came of it."""

import time
from collections.abc import Sequence
from typing import Final, TextIO

from scalebook.training.commands.run_lines import bar
from scalebook.training.config.search.cost import trials_wanted
from scalebook.training.config.search.definition import SearchSpec
from scalebook.training.config.search.point import summary
from scalebook.training.durations import roughly
from scalebook.training.files.terminal import aligned, over
from scalebook.training.jobs.supervising import Keeper, silence
from scalebook.training.search import launch
from scalebook.training.search.folder import ENDED, SearchFolder, SearchProgress
from scalebook.training.search.study.reading import read
from scalebook.training.search.study.trials import STATES, TrialRecord, at_rest, best, pareto

LOOK_EVERY_S: Final = 0.25
PLAIN_EVERY_S: Final = 10.0
STOP_DEADLINE_S: Final = 90.0
SILENCE_S: Final = 1800.0
"""No sign of the driver for so long: given up."""
SHOWN: Final = 10
"""Trials in the table."""
INTERRUPTED: Final = 130


def follow(folder: SearchFolder, spec: SearchSpec, out: TextIO) -> int:
    """Watch until it has ended; 0 finished, 1 not, 130 when interrupted, which stops the search."""
    name = folder.request().name
    say(out, f"scalebook: search {folder.id[:8]}, {name}: {trials_wanted(spec)} trials over {_space(spec)}")
    try:
        moved = _watch(folder, out)
    except KeyboardInterrupt:
        return _interrupted(folder, out)
    say(out, f"\n{results(folder, spec)}")
    result = folder.result()
    if not moved or result is None:
        say(out, f"Nothing happened for {roughly(SILENCE_S)}; `scalebook search list` shows its state.")
        return 1
    say(out, f"{name} {result.status}: {result.cause}{f'. {result.advice}' if result.advice else ''}")
    return 0 if result.status == "finished" else 1


def _watch(folder: SearchFolder, out: TextIO) -> bool:
    """False when nothing has moved for too long. A supervisor that died is replaced, and replaces the driver."""
    live = out.isatty()
    said, seen, moved = 0.0, 0.0, time.monotonic()
    keeper = Keeper(folder.workspace)
    while folder.state() not in ENDED:
        now = time.monotonic()
        keeper.look()
        if news := keeper.news():
            say(out, ("\n" if live else "") + f"scalebook: {news}")
        progress = folder.progress()
        if progress is not None and progress.time != seen:
            seen, moved = progress.time, now
            if live:
                over(out, line(progress))
            elif now - said > PLAIN_EVERY_S:
                said = now
                say(out, line(progress))
        if now - moved > SILENCE_S:
            return False
        time.sleep(LOOK_EVERY_S)
    return True


def line(progress: SearchProgress) -> str:
    """`████------  42 of 100 trials  best 0.123 (trial 17)  2 run  3 min left  memory ends at 512 ...`"""
    words = [bar(progress.done / max(1, progress.trials), "utf8"), f"{progress.done} of {progress.trials} trials"]
    if progress.best is not None:
        words.append(f"best {progress.best:.4g} (trial {progress.best_trial})")
    words.append(f"{progress.running} running")
    if progress.left_s is not None:
        words.append(f"{roughly(progress.left_s)} left")
    return "  ".join([*words, progress.note] if progress.note else words)


def _interrupted(folder: SearchFolder, out: TextIO) -> int:
    say(out, "\nInterrupted: stopping the search (press again to leave that to its driver).")
    launch.stop(folder)
    if silent := silence(folder.workspace):
        say(out, f"scalebook: {silent}")
    deadline = time.monotonic() + STOP_DEADLINE_S
    try:
        while time.monotonic() < deadline and folder.state() not in ENDED:
            time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        say(out, "The driver stops the rest.")
        return INTERRUPTED
    again = f"`scalebook search resume {folder.id[:8]}` continues it."
    say(out, f"{'Stopped' if folder.state() in ENDED else 'It is still stopping'}. {again}")
    return INTERRUPTED


def results(folder: SearchFolder, spec: SearchSpec) -> str:
    """How many trials ended how, and the best of them as a table."""
    folder.require_trust(reading=True)
    asked = folder.request()
    records = read(asked.storage, asked.study, spec)
    if folder.state() in ENDED:
        records = at_rest(records)
    counts = [(state, sum(1 for record in records if record.state == state)) for state in STATES]
    ended_how = ", ".join(f"{number} {state}" for state, number in counts if number)
    return "\n".join([f"{asked.name}: {ended_how or 'no trial yet'}", *_table(records, spec), *_failures(records)])


def _table(records: Sequence[TrialRecord], spec: SearchSpec) -> list[str]:
    finished = [record for record in records if record.state == "finished"]
    if not finished:
        return []
    if len(spec.objectives) > 1:
        shown, title = pareto(records, spec)[:SHOWN], "the Pareto front"
    else:
        sign = 1 if spec.objectives[0].lower else -1
        shown, title = sorted(finished, key=lambda record: sign * record.values[0])[:SHOWN], "the best"
    head = ("trial", *(objective.name for objective in spec.objectives), "seconds", "point")
    rows = [head, *(_row(record, spec) for record in shown)]
    lines = aligned(rows, range(len(head) - 1))
    winner = best(records, spec)
    return ["", f"{title} of {len(finished)}:", *lines, ""] if winner else lines


def _row(record: TrialRecord, spec: SearchSpec) -> tuple[str, ...]:
    spread = f" ± {record.spread:.2g}" if record.spread is not None else ""
    values = [f"{value:.4g}" for value in record.values]
    seconds = f"{record.seconds:.1f}" if record.seconds is not None else ""
    return (str(record.number), f"{values[0]}{spread}", *values[1:], seconds, summary(spec, record.point))


def _failures(records: Sequence[TrialRecord]) -> list[str]:
    """One line for each kind of failure, with an example."""
    kinds: dict[str, list[TrialRecord]] = {}
    for record in records:
        if record.state in ("infeasible", "failed"):
            kinds.setdefault(record.failure or record.state, []).append(record)
    return [f"{len(failed)} {kind}, e.g. trial {failed[0].number}: {failed[0].cause}" for kind, failed in kinds.items()]


def _space(spec: SearchSpec) -> str:
    return " x ".join(dimension.name for dimension in spec.space)


def say(out: TextIO, text: str) -> None:
    out.write(f"{text}\n")
    out.flush()
