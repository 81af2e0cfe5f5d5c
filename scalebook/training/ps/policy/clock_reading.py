"""A clock as a config writes it: plain mappings made into `ClockSettings`, or refused by key and remedy. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final, TypeVar

from scalebook.training.ps.policy.clock import CLOCK, ClockSettings, Death, Distribution, Link

Made = TypeVar("Made", Distribution, Link, Death, ClockSettings)
_NUMBERS: Final = ("mean", "cv", "worker", "at_s", "back_s")


def read_clock(written: object, workers: int) -> ClockSettings:
    """ValueError, naming key and remedy, for what is no clock of so many workers. What earlier runs have recorded need
    not have been read."""
    clock = made_clock(written)
    clock.check(workers, is_read=False)
    return clock


def made_clock(written: object) -> ClockSettings:
    """The same, not yet held against a number of workers."""
    raw = dict(_mapping(written, CLOCK, "as {gradient_s: 0.05}"))
    for name in ("gradient_s", "server_s"):
        if name in raw:
            raw[name] = _value(raw[name], f"{CLOCK}.{name}")
    for name in ("link", "server_link"):
        if name in raw:
            raw[name] = _link(raw[name], f"{CLOCK}.{name}")
    if "stragglers" in raw:
        by_worker = _by_worker(raw["stragglers"], f"{CLOCK}.stragglers")
        raw["stragglers"] = {
            worker: _number(seconds, f"{CLOCK}.stragglers.{worker}") for worker, seconds in by_worker.items()
        }
    if "links" in raw:
        by_worker = _by_worker(raw["links"], f"{CLOCK}.links")
        raw["links"] = {worker: _link(link, f"{CLOCK}.links.{worker}") for worker, link in by_worker.items()}
    if "deaths" in raw:
        raw["deaths"] = [_death(death, f"{CLOCK}.deaths") for death in _list(raw["deaths"], f"{CLOCK}.deaths")]
    return _make(ClockSettings, raw, CLOCK)


def _value(written: object, key: str) -> Any:
    if not isinstance(written, Mapping):
        return _number(written, key)
    raw = {
        name: _number(value, f"{key}.{name}") if name in _NUMBERS and value is not None else value
        for name, value in written.items()
    }
    if "values" in raw:
        raw["values"] = [_number(value, f"{key}.values") for value in _list(raw["values"], f"{key}.values", "[0.05]")]
    return _make(Distribution, raw, key)


def _link(written: object, key: str) -> Link:
    raw = _mapping(written, key, "as {latency_s: 0.0001, bandwidth: 1.25e+9}")
    values = {name: None if value is None else _value(value, f"{key}.{name}") for name, value in raw.items()}
    return _make(Link, values, key)


def _death(written: object, key: str) -> Death:
    raw = _mapping(written, key, "each as {worker: 3, at_s: 10, back_s: 20}")
    known = {name: value if value is None else _number(value, f"{key}.{name}") for name, value in raw.items()}
    return _make(Death, known, key)


def _make(kind: type[Made], raw: Mapping[str, Any], key: str) -> Made:
    known = {field.name for field in fields(kind)}
    for name in raw:
        if name not in known:
            raise ValueError(f"{key}.{name}: unknown key. Known: {', '.join(sorted(known))}.")
    try:
        return kind(**raw)
    except TypeError:
        needed = next(name for name in kind.__match_args__ if name not in raw)
        raise ValueError(f"{key}.{needed}: is missing. Write it, or leave {key.rpartition('.')[2]} out.") from None


def _mapping(written: object, key: str, example: str) -> Mapping[str, Any]:
    if not isinstance(written, Mapping) or not all(isinstance(name, str) for name in written):
        raise ValueError(f"{key}: is {written!r}, not a mapping of names. Write it {example}.")
    return written


def _by_worker(written: object, key: str) -> dict[int, object]:
    """Worker numbers are keys, which JSON makes strings of."""
    if not isinstance(written, Mapping) or not all(str(worker).isdecimal() for worker in written):
        raise ValueError(f"{key}: is {written!r}, not a mapping of worker numbers. Write it as {{3: ...}}.")
    return {int(worker): value for worker, value in written.items()}


def _list(written: object, key: str, example: str = "[{worker: 3, at_s: 10}]") -> list[object]:
    if not isinstance(written, Sequence) or isinstance(written, str):
        raise ValueError(f"{key}: is {written!r}, not a list. Write one, as {example}.")
    return [*written]


def _number(written: object, key: str) -> Any:
    if isinstance(written, bool) or not isinstance(written, int | float):
        raise ValueError(f"{key}: is {written!r}, not a number. Write one, as 0.05.")
    return written
