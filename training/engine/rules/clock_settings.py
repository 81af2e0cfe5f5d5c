"""The clock of a virtual run, declared: how long everything takes, and who dies when. Imports no torch.

Each part is a number, or a `Distribution` from which every gradient, push or transfer draws its own. What draws and
what queues is `engine/sim/sim_clock.py`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.rules.argument_limits import (
    Above,
    AtLeast,
    Below,
    CountOrNone,
    PositiveInt,
    check_limits,
)

DistributionName = Literal["uniform", "exponential", "lognormal", "gamma"]
Recorded = Literal["recorded"]
RECORDED: Final[Recorded] = "recorded"
CLOCK: Final = "clock"
"""Where a config has it."""
WIDEST: Final = 1 / math.sqrt(3)
"""Coefficient of variation of a uniform distribution that begins at 0; a wider one would be negative at times."""
_FINITE: Final = Below(math.inf, "a finite number")
_POSITIVE: Final = Above(0)


@dataclass(frozen=True)
class Distribution:
    """Independent draws with this mean and coefficient of variation (standard deviation / mean); never negative.

    Args:
        kind: `uniform`, `exponential`, `lognormal` or `gamma`; or `recorded`, which uses the measurements of an earlier
            run.
        mean: Mean of the draws, in the unit of the key that has this distribution.
        cv: Coefficient of variation (standard deviation / mean). Leave it out for `exponential`, where it is always 1.
        run: With `recorded`: the id of the run with the measurements, or the first characters of this id.
        worker: With `recorded`: the number of the worker in that run, from 0. Null: all workers of that run together.
        values: With `recorded`: equally likely values. Scalebook writes values, mean and cv when the run is submitted.
    """

    kind: DistributionName | Recorded
    mean: Annotated[float, AtLeast(0), _FINITE] = math.nan
    cv: Annotated[float, AtLeast(0), _FINITE] | None = None
    run: str | None = None
    worker: int | None = None
    values: Sequence[float] = ()

    def check(self, argument: str, is_read: bool = True) -> None:
        """ArgumentError for values that no such distribution has.

        `is_read`: whether what an earlier run has recorded must be there already.
        """
        if self.kind == RECORDED:
            self._check_recorded(argument, is_read)
            return
        if self.kind not in get_args(DistributionName):
            known = ", ".join((*get_args(DistributionName), RECORDED))
            raise ArgumentError(
                "unknown-value", f"{argument}.kind", f"{self.kind!r} is unknown", f"Use one of {known}."
            )
        for name in ("run", "worker", "values"):
            if getattr(self, name) not in (None, (), []):
                raise ArgumentError(
                    "no-effect",
                    f"{argument}.{name}",
                    f"has no effect on {self.kind}",
                    "Remove it, or set kind: recorded.",
                )
        if math.isnan(self.mean):
            raise ArgumentError("missing", f"{argument}.mean", "is missing", "Use a number such as 0.05.")
        check_limits(type(self), vars(self), argument)
        if self.kind == "exponential":
            if self.cv not in (None, 1):
                raise ArgumentError(
                    "no-effect", f"{argument}.cv", "is always 1 for exponential", "Remove it, or set kind: gamma."
                )
        elif self.cv is None:
            raise ArgumentError(
                "contradiction",
                f"{argument}.cv",
                f"{self.kind} needs a coefficient of variation",
                "Set cv to a number such as 0.2.",
            )
        if self.kind == "uniform" and self.cv is not None and self.cv > WIDEST:
            raise ArgumentError(
                "out-of-bounds",
                f"{argument}.cv",
                f"{self.cv} would give negative times",
                f"Use {WIDEST:.3g} or less, or kind: gamma.",
            )

    def _check_recorded(self, argument: str, is_read: bool) -> None:
        if not isinstance(self.run, str) or not self.run:
            raise ArgumentError("missing", f"{argument}.run", "is missing", "Use the id of the run that measured it.")
        for value in self.values:
            for bound in (AtLeast(0), _FINITE):
                bound.refuse(f"{argument}.values", value)
        if not self.values:
            if is_read:
                raise ArgumentError(
                    "contradiction",
                    f"{argument}.values",
                    f"the measurements of run {self.run} have not been read",
                    "Submit the config to Scalebook, which reads these measurements, or set the values yourself.",
                )
            if not math.isnan(self.mean) or self.cv is not None:
                raise ArgumentError(
                    "contradiction", f"{argument}.mean", "comes from the recorded run", "Remove mean and cv."
                )
        elif not math.isclose(self.mean, math.fsum(self.values) / len(self.values), rel_tol=1e-3):
            raise ArgumentError(
                "contradiction",
                f"{argument}.mean",
                "is not the mean of the values",
                "Remove mean, cv and values. Scalebook then reads them again from the recorded run.",
            )


Seconds = Annotated[float, AtLeast(0), _FINITE] | Distribution
Bandwidth = Annotated[float, _POSITIVE, _FINITE] | Distribution | None


@dataclass(frozen=True)
class Link:
    """One end of the network. It carries the full bandwidth in both directions at the same time (full duplex).

    Args:
        latency_s: Seconds per message, in addition to the time of its bytes.
        bandwidth: Bytes per second; null: no limit.
    """

    latency_s: Seconds = 0.0
    bandwidth: Bandwidth = None

    def check(self, argument: str) -> None:
        """ArgumentError for what no link has."""
        for name, value in vars(self).items():
            if isinstance(value, Distribution) and value.kind == RECORDED:
                raise ArgumentError(
                    "contradiction",
                    f"{argument}.{name}.kind",
                    "runs do not record links: real workers pass gradients in memory",
                    f"Use one of {', '.join(get_args(DistributionName))}, or use recorded only for gradient_s and "
                    "server_s.",
                )
        _check(self, argument)


@dataclass(frozen=True)
class Death:
    """The death of a worker. The gradient that this worker was computing is lost.

    Args:
        worker: Number of the worker, from 0.
        at_s: When the worker dies, in seconds of the virtual clock.
        back_s: When the worker returns and joins late, in seconds of the virtual clock. Null: never.
    """

    worker: Annotated[int, AtLeast(0)]
    at_s: Annotated[float, AtLeast(0), _FINITE]
    back_s: Annotated[float, AtLeast(0), _FINITE] | None = None


@dataclass(frozen=True)
class MachineGroup:
    """Machines that split one model and compute each gradient together, as in DistBelief (Dean et al. 2012, section 3).

    A gradient is computed in phases. In each phase, every machine computes its share. When the slowest machine is done,
    all machines send their messages at the same time.

    Args:
        machines: Number of machines in a group. 1: the model is not split, so there are no phases, and nothing is sent.
        phases: How often the machines wait for each other during a gradient. Each layer boundary that values cross
            between machines counts twice (forward and backward), so 3 boundaries make 6 phases.
        messages: Number of messages that a machine sends in each phase, one after the other. Null: one message to each
            other machine, as fully connected layers need. Beyond some number of machines, a larger group is then
            slower.
        bytes: Bytes per message.
        bandwidth: Bytes per second of each machine's link. It may be null only if no bytes are sent.
        latency_s: Seconds per message, in addition to the time of its bytes.
    """

    machines: PositiveInt
    phases: PositiveInt = 2
    messages: CountOrNone = 1
    bytes: Annotated[float, AtLeast(0), _FINITE] = 0.0
    bandwidth: Annotated[float, _POSITIVE, _FINITE] | None = None
    latency_s: Annotated[float, AtLeast(0), _FINITE] = 0.0

    @property
    def waits(self) -> int:
        """Phases of a gradient; a machine that is alone computes all of it in one."""
        return 1 if self.machines == 1 else self.phases

    @property
    def sending_s(self) -> float:
        """Seconds of a gradient in which the machines send."""
        if self.machines == 1:
            return 0.0
        messages = self.machines - 1 if self.messages is None else self.messages
        return self.phases * messages * (self.latency_s + (self.bytes / self.bandwidth if self.bandwidth else 0.0))

    def check(self, argument: str) -> None:
        """ArgumentError for what no group has."""
        for name in ("machines", "phases", "messages"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | None):
                raise ArgumentError(
                    "wrong-type",
                    f"{argument}.{name}",
                    f"is {value!r}, not a whole number",
                    "Use a whole number, such as 8.",
                )
        for name in ("machines", "phases", "bytes", "latency_s"):
            if getattr(self, name) is None:
                raise ArgumentError("wrong-type", f"{argument}.{name}", "is null", "Use a number, or remove it.")
        check_limits(type(self), vars(self), argument)
        if self.bytes and self.bandwidth is None:
            raise ArgumentError(
                "missing",
                f"{argument}.bandwidth",
                f"is missing, so the {self.bytes:g} bytes of a message would take no time",
                "Set it to bytes per second, such as 1.25e+9, or remove the key `bytes`.",
            )


@dataclass(frozen=True)
class ClockSettings:
    """How long everything takes in a virtual run.

    A push travels from its worker to the servers over both links. The slower link determines the speed, and transfers
    in one direction queue at the servers' link, first come, first served. Every shard has its own queue, serves the
    push and applies it. Then the parameters travel back. Dropped pushes take the same time.

    Args:
        gradient_s: Seconds that one machine needs for one gradient: fetching, forward and backward.
        stragglers: Factors that multiply the times of single workers, by worker number: `{3: 2.0}`. In a group, a
            factor multiplies all times of a gradient.
        server_s: Seconds that each shard needs for a push.
        link: The link of every worker.
        links: Links of single workers, by worker number, which replace `link`.
        server_link: The link that all servers share.
        deaths: Workers that die, and when they return.
        server_process: Whether servers are separate processes, as with `host: process`. Under `softsync`, the worker
            that completes a round then pulls before the servers have applied the round.
        group: Machines that split the model and act together as one worker: `{machines: 8, phases: 4}`. Null: each
            worker is one machine.
    """

    gradient_s: Seconds
    stragglers: Mapping[int, float] = field(default_factory=dict)
    server_s: Seconds = 0.0
    link: Link = field(default_factory=Link)
    links: Mapping[int, Link] = field(default_factory=dict)
    server_link: Link = field(default_factory=Link)
    deaths: Sequence[Death] = ()
    server_process: bool = False
    group: MachineGroup | None = None

    def check(self, workers: int, argument: str = CLOCK, is_read: bool = True) -> None:
        """ArgumentError for what is out of bounds or speaks of a worker that is not there.

        `is_read`: whether what earlier runs have recorded must be there already.
        """
        _check(self, argument, is_read)
        for worker, factor in self.stragglers.items():
            _known(worker, workers, f"{argument}.stragglers")
            for bound in (_POSITIVE, _FINITE):
                bound.refuse(f"{argument}.stragglers.{worker}", factor)
        self.link.check(f"{argument}.link")
        self.server_link.check(f"{argument}.server_link")
        for worker, link in self.links.items():
            _known(worker, workers, f"{argument}.links")
            link.check(f"{argument}.links.{worker}")
        self._check_deaths(workers, f"{argument}.deaths")
        if not isinstance(self.server_process, bool):
            raise ArgumentError(
                "wrong-type", f"{argument}.server_process", f"is {self.server_process!r}", "Use true or false."
            )
        if self.group is not None:
            self.group.check(f"{argument}.group")

    def check_without_servers(self) -> None:
        """ArgumentError for what only servers need."""
        for name in ("server_s", "server_link", "server_process"):
            if getattr(self, name) not in (0, Link(), False):
                raise ArgumentError(
                    "no-effect", f"{CLOCK}.{name}", "has no effect, since peers have no server", "Remove it."
                )

    def _check_deaths(self, workers: int, argument: str) -> None:
        until: dict[int, float] = {}
        for death in sorted(self.deaths, key=lambda death_: death_.at_s):
            check_limits(type(death), vars(death), argument)
            _known(death.worker, workers, argument)
            if death.at_s < until.get(death.worker, 0.0):
                raise ArgumentError(
                    "contradiction",
                    argument,
                    f"worker {death.worker} dies at {death.at_s:g} s, but is already dead by then",
                    "Set a smaller back_s for the earlier death, or a larger at_s for the later one.",
                )
            if death.back_s is not None and death.back_s < death.at_s:
                raise ArgumentError(
                    "contradiction",
                    argument,
                    f"worker {death.worker} comes back at {death.back_s:g} s, before it dies at {death.at_s:g} s",
                    "Set back_s to a later time or to null.",
                )
            until[death.worker] = math.inf if death.back_s is None else death.back_s


def _check(given: ClockSettings | Link, argument: str, is_read: bool = True) -> None:
    check_limits(type(given), vars(given), argument)
    for name, value in vars(given).items():
        if isinstance(value, Distribution):
            value.check(f"{argument}.{name}", is_read)
            if name == "bandwidth":
                _POSITIVE.refuse(f"{argument}.{name}.mean", value.mean)


def _known(worker: int, workers: int, argument: str) -> None:
    if not 0 <= worker < workers:
        raise ArgumentError(
            "out-of-bounds", argument, f"worker {worker} does not exist", f"Use numbers from 0 to {workers - 1}."
        )


Made = TypeVar("Made", Distribution, Link, Death, MachineGroup, ClockSettings)
_NUMBERS: Final = ("mean", "cv", "worker", "at_s", "back_s")


def read_clock(written: object, workers: int) -> ClockSettings:
    """ArgumentError for what is no clock of so many workers. What earlier runs have recorded need
    not have been read."""
    clock = made_clock(written)
    clock.check(workers, is_read=False)
    return clock


def made_clock(written: object) -> ClockSettings:
    """The same, not yet held against a number of workers."""
    raw = dict(_mapping(written, CLOCK, "as {gradient_s: 0.05}"))
    for name in ("gradient_s", "server_s"):
        if name in raw:
            raw[name] = _read_value(raw[name], f"{CLOCK}.{name}")
    for name in ("link", "server_link"):
        if name in raw:
            raw[name] = _read_link(raw[name], f"{CLOCK}.{name}")
    if "stragglers" in raw:
        by_worker = _by_worker(raw["stragglers"], f"{CLOCK}.stragglers")
        raw["stragglers"] = {
            worker: _number(seconds, f"{CLOCK}.stragglers.{worker}") for worker, seconds in by_worker.items()
        }
    if "links" in raw:
        by_worker = _by_worker(raw["links"], f"{CLOCK}.links")
        raw["links"] = {worker: _read_link(link, f"{CLOCK}.links.{worker}") for worker, link in by_worker.items()}
    if "deaths" in raw:
        raw["deaths"] = [
            _read_numbers(Death, death, f"{CLOCK}.deaths", "{worker: 3, at_s: 10, back_s: 20}")
            for death in _list(raw["deaths"], f"{CLOCK}.deaths")
        ]
    if raw.get("group") is not None:
        raw["group"] = _read_numbers(MachineGroup, raw["group"], f"{CLOCK}.group", "{machines: 8, phases: 4}")
    return _make(ClockSettings, raw, CLOCK)


def _read_value(written: object, argument: str) -> Any:
    if not isinstance(written, Mapping):
        return _number(written, argument)
    raw = {
        name: _number(value, f"{argument}.{name}") if name in _NUMBERS and value is not None else value
        for name, value in written.items()
    }
    if "values" in raw:
        raw["values"] = [
            _number(value, f"{argument}.values") for value in _list(raw["values"], f"{argument}.values", "[0.05]")
        ]
    return _make(Distribution, raw, argument)


def _read_link(written: object, argument: str) -> Link:
    raw = _mapping(written, argument, "{latency_s: 0.0001, bandwidth: 1.25e+9}")
    values = {name: None if value is None else _read_value(value, f"{argument}.{name}") for name, value in raw.items()}
    return _make(Link, values, argument)


def _read_numbers(kind: type[Made], written: object, argument: str, example: str) -> Made:
    """What is all numbers or null."""
    raw = _mapping(written, argument, example)
    values = {name: value if value is None else _number(value, f"{argument}.{name}") for name, value in raw.items()}
    return _make(kind, values, argument)


def _make(kind: type[Made], raw: Mapping[str, Any], argument: str) -> Made:
    names = {field.name for field in fields(kind)}
    for name in raw:
        if name not in names:
            raise ArgumentError(
                "unknown-argument", f"{argument}.{name}", "unknown argument", f"Known: {', '.join(sorted(names))}."
            )
    try:
        return kind(**raw)
    except TypeError:
        needed = next(name for name in kind.__match_args__ if name not in raw)
        raise ArgumentError(
            "missing", f"{argument}.{needed}", "is missing", f"Set it, or leave out {argument.rpartition('.')[2]}."
        ) from None


def _mapping(written: object, argument: str, example: str) -> Mapping[str, Any]:
    if not isinstance(written, Mapping) or not all(isinstance(name, str) for name in written):
        raise ArgumentError(
            "wrong-type", argument, f"is {written!r}, not a mapping with names as keys", f"Use the form {example}."
        )
    return written


def _by_worker(written: object, argument: str) -> dict[int, object]:
    """Worker numbers are keys, which JSON makes strings of."""
    if not isinstance(written, Mapping) or not all(str(worker).isdecimal() for worker in written):
        raise ArgumentError(
            "wrong-type",
            argument,
            f"is {written!r}, not a mapping with worker numbers as keys",
            "Use the form {3: ...}.",
        )
    return {int(worker): value for worker, value in written.items()}


def _list(written: object, argument: str, example: str = "[{worker: 3, at_s: 10}]") -> list[object]:
    if not isinstance(written, Sequence) or isinstance(written, str):
        raise ArgumentError("wrong-type", argument, f"is {written!r}, not a list", f"Use a list, such as {example}.")
    return [*written]


def _number(written: object, argument: str) -> Any:
    if isinstance(written, bool) or not isinstance(written, int | float):
        raise ArgumentError("wrong-type", argument, f"is {written!r}, not a number", "Use a number, such as 0.05.")
    return written
