"""Plan's question and answer as plain data: a system described by hand, and an answer as rows and CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from scalebook.training.base import ConfigError
from scalebook.training.base.files import yaml
from scalebook.training.engine.rules import Distribution
from scalebook.training.planner import Answer, Curve, Point, SplitAnswer, split_words
from scalebook.training.pricing import Profile, format_quantity, links, mean_s, read_profile


@dataclass(frozen=True)
class SystemField:
    """One field of the form. `key` is its query parameter; `default` belongs to an example, a model of 25 M parameters
    on accelerators."""

    key: str
    label: str
    default: str
    hint: str


FIELDS: Final = (
    SystemField(
        "gradient",
        "Time per gradient",
        "180 ms",
        "Time that one worker needs for data loading, forward and backward pass.",
    ),
    SystemField(
        "spread",
        "Spread of that time",
        "0.1",
        "Standard deviation divided by the mean. If empty, every gradient takes the same time.",
    ),
    SystemField("samples", "Samples per gradient", "32", "Batch size per worker."),
    SystemField("parameters", "Parameters", "100 MB", "Bytes per push and per pull."),
    SystemField(
        "copying", "Server copies", "10 GB/s", "Memory bandwidth of one core. An update reads and writes memory."
    ),
    SystemField(
        "bandwidth",
        "Link",
        "10 Gbit/s",
        "Bandwidth of each worker's link, and of all servers' links together. If empty, bandwidth is unlimited.",
    ),
    SystemField("latency", "Latency", "20 us", "One way."),
)
TEMPLATE: Final = """\
title: a model of 25 M parameters on accelerators
gradient: {kind: gamma, mean: 180 ms, cv: 0.1}
batch_size: 32
parameters: 100 MB        # or push and pull, one by one
copy_bandwidth: 10 GB/s   # of a server; or server: 0.03 (seconds of a push)
stragglers: {}            # {3: 2.0}: worker 3 takes twice as long
server_machines: one      # or each: a machine, with its link, for each shard; workers: on the workers' machines
# server_cores: 8         # of a machine that serves; a shard is served by one core
# software: {message: 50 us, bandwidth: 2 GB/s}   # what each end takes for a message, and copies
link: {bandwidth: 10 Gbit/s, latency: 20 us}
server_link: {bandwidth: 10 Gbit/s}
"""


def from_fields(typed: Mapping[str, str]) -> Profile:
    """The profile of a system from the form's values, by the keys of FIELDS. ConfigError, with key and remedy, for
    values that make no profile."""
    values = {key: text.strip() for key, text in typed.items()}
    gradient: Any = values["gradient"]
    if values["spread"]:
        gradient = {"kind": "gamma", "mean": gradient, "cv": _number(values["spread"], "profile.gradient.cv", "0.1")}
    link = {name: _plain(values[name]) for name in ("bandwidth", "latency") if values[name]}
    return read_profile(
        {
            "gradient": _plain(gradient),
            "batch_size": _number(values["samples"], "profile.batch_size", "32"),
            "parameters": _plain(values["parameters"]),
            "copy_bandwidth": _plain(values["copying"]),
            "network": link,
        }
    )


def from_text(text: str) -> Profile:
    """The profile in a YAML text. ConfigError, with key and remedy, for a text that is no profile."""
    try:
        raw = yaml.load(text)
    except ConfigError as error:
        raise ConfigError(yaml.place_of(error), error.problem.message, error.problem.fix) from None
    if not isinstance(raw, dict):
        raise ConfigError("profile", "is not a mapping", "Enter one key per line, such as gradient: 180 ms.")
    return read_profile({str(key): value for key, value in raw.items()})


@cache
def examples() -> list[Profile]:
    """What the form and the YAML describe before anybody has changed them."""
    return [from_fields({field.key: field.default for field in FIELDS}), from_text(TEMPLATE)]


def facts(profile: Profile) -> list[tuple[str, str]]:
    """The figures of a profile, each with its name."""
    cv = profile.gradient_s.cv if isinstance(profile.gradient_s, Distribution) else None
    return [
        ("time per gradient", format_quantity(profile.gradient_mean_s, "s")),
        *([("spread", f"± {cv:.0%}")] if cv else []),
        ("samples per gradient", f"{profile.batch_size:,}"),
        ("bytes per push", format_quantity(profile.push_bytes, "B")),
        ("bytes per pull", format_quantity(profile.pull_bytes, "B")),
        ("server time per push", format_quantity(mean_s(profile.server_s), "s")),
        *([("cores for the servers", str(profile.server_cores))] if profile.server_cores else []),
        *(
            [("software time per message, at each end", format_quantity(profile.software.message_s, "s"))]
            if profile.software
            else []
        ),
        ("link", _bandwidth(profile)),
        *([("GPUs", str(profile.gpus))] if profile.gpus else [("cores", str(profile.cores))] if profile.cores else []),
        *[
            (f"time with {number} workers at once", f"{factor:.2f} × as long")
            for number, factor in sorted(profile.slowdown.items())
        ],
    ]


def _bandwidth(profile: Profile) -> str:
    bandwidth = profile.network.link.bandwidth
    return format_quantity(bandwidth, "B/s") if isinstance(bandwidth, float | int) else "no limit"


def _plain(text: Any) -> Any:
    """The text as a number if it has no unit, else the text."""
    if isinstance(text, str):
        try:
            return float(text)
        except ValueError:
            return text
    return text


def _number(text: str, key: str, example: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ConfigError(key, f"is {text!r}, not a number", f"Enter a number, such as {example}.") from None
    return int(value) if value.is_integer() else value


COLUMNS: Final = (
    "workers", "updates_per_s", "samples_per_s", "speedup", "compute", "communicate", "idle", "staleness",
    "staleness_p95", "dropped", "server_busy", "in_busy", "out_busy", "memory",
)  # fmt: skip


def curve_names(curves: Sequence[Curve]) -> list[str]:
    """A name for each curve: its rule, and its shards and network if the curves differ in them."""
    several_shards = len({curve.shards for curve in curves}) > 1
    several_networks = len({curve.network for curve in curves}) > 1
    return [
        " · ".join(
            [
                f"{curve.rule} (the config's)" if curve.own else curve.rule,
                *([f"{curve.shards} shard{'s' * (curve.shards > 1)}"] if several_shards else []),
                *([links.WORDS[curve.network]] if several_networks else []),
            ]
        )
        for curve in curves
    ]


def speedup(curve: Curve, point: Point) -> float:
    """Samples per second, relative to one worker."""
    return point.samples_per_s / curve.one_per_s


def as_csv(answer: Answer) -> str:
    """The answer as CSV, one line for each curve and number of workers."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["rule", "shards", "network", *COLUMNS, "basis"])
    for curve in answer.curves:
        for point in curve.points:
            values = {**vars(point), "speedup": speedup(curve, point)}
            figures = [f"{values[name]:.6g}" for name in COLUMNS]
            writer.writerow([curve.rule, curve.shards, curve.network, *figures, curve.basis(point.workers)])
    return text.getvalue()


@dataclass(frozen=True)
class SplitRow:
    """One split of the model. `figures`: samples/s, times one worker, samples an update, computing, memory, sent; empty
    where it cannot be trained, but for the memory. `cause`: what limits it, or why it is struck out."""

    words: str
    figures: tuple[str, ...]
    cause: str
    struck: bool = False


SPLIT_FIGURES: Final = ("samples/s", "× one worker", "samples an update", "computing", "memory", "sent")
MOST_ROWS: Final = 12
"""Of those that can be trained, and of those that cannot."""


def split_rows(answer: SplitAnswer) -> list[SplitRow]:
    """The fastest, then what cannot be trained, that with the least memory first."""
    rows = [
        SplitRow(
            point.words,
            (
                split_words.three(point.samples_per_s), f"{point.faster:.2f}", f"{point.samples:,}",
                f"{point.compute:.0%}", format_quantity(point.memory, "B"), format_quantity(point.sent, "B"),
            ),
            "; ".join(f"{share:.0%} {words}" for share, words in split_words.losses(point)),
        )
        for point in answer.points[:MOST_ROWS]
    ]  # fmt: skip
    for split in sorted(answer.struck, key=lambda split: split.memory)[:MOST_ROWS]:
        memory, cause = "", split.cause
        if split.memory:
            memory, cause = format_quantity(split.memory, "B"), f"{cause}, {format_quantity(answer.limit, 'B')}"
        if split.recomputed < split.memory:
            cause += f"; {format_quantity(split.recomputed, 'B')} if activations are computed again"
        rows.append(SplitRow(split.words, ("", "", "", "", memory, ""), cause, struck=True))
    return rows


def split_count(answer: SplitAnswer) -> str:
    """How many of all splits the table has."""
    rows = min(len(answer.points), MOST_ROWS) + min(len(answer.struck), MOST_ROWS)
    return f"{rows} of {len(answer.points) + len(answer.struck)} splits."
