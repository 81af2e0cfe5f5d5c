"""What a system is made of, as far as its speed goes: measured on this machine, or written by hand for another."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from scalebook.training.errors import ConfigError
from scalebook.training.files import records
from scalebook.training.planning.links import Network, network, read_link
from scalebook.training.planning.quantities import quantity
from scalebook.training.ps.policy.bounds import Above, AtLeast, check
from scalebook.training.ps.policy.clock import ClockSettings, Distribution, DistributionName, Link, Seconds

Machines = Literal["one", "each"]
PASSES: Final = 3
"""Of a plain SGD update over memory: read parameters and gradient, write parameters."""
COPY_BANDWIDTH: Final = 1e10
"""Bytes a second that a server moves where a profile says nothing: one core of a present server."""


@dataclass(frozen=True)
class Profile:
    """One system: a model at its batch size, the machines that compute, those that serve, and what joins them.

    Args:
        gradient_s: Seconds of one gradient: fetching, forward and backward.
        batch_size: Samples of one gradient.
        push_bytes: Bytes of a gradient as it travels.
        pull_bytes: Bytes of the parameters as they travel.
        server_s: Seconds in which one shard that has all parameters serves a push.
        stragglers: How many times as long single workers take, by number.
        cores: Gradients that can be computed at the same time, since workers share a machine; null: each worker has
            one of its own.
        network: What joins workers and servers.
        server_machines: `one`: all shards are served by one machine, and share its link. `each`: each shard has a
            machine, and a link, of its own.
        shard_shares: The share of the largest of so many shards, where they are not equal.
        slowdown: How many times as long a gradient and its push take where so many are computed at the same time on
            a machine that workers share: they take caches, memory bandwidth and turbo from each other. Between these
            numbers, and from 1 worker on, a straight line.
        sparse: Whether part of the model is sparse tables, whose rows travel as they are: then codecs, sums and steps
            of a worker's own are not offered, and more shards only where `shard_shares` says what they bring.
        title: What it is a profile of.
        source: Where its numbers come from.
    """

    gradient_s: Seconds
    batch_size: Annotated[int, AtLeast(1)]
    push_bytes: Annotated[float, AtLeast(0)]
    pull_bytes: Annotated[float, AtLeast(0)]
    server_s: Seconds = 0.0
    stragglers: Mapping[int, float] = field(default_factory=dict)
    cores: Annotated[int, AtLeast(1, "1 or more, or null")] | None = None
    network: Network = field(default_factory=Network)
    server_machines: Machines = "one"
    shard_shares: Mapping[int, float] = field(default_factory=dict)
    slowdown: Mapping[int, float] = field(default_factory=dict)
    sparse: bool = False
    title: str = "a system"
    source: str = "written by hand"

    @property
    def gradient_mean_s(self) -> float:
        """Of the workers that are no stragglers."""
        return mean(self.gradient_s)

    def shared_by(self, workers: int) -> "Profile":
        """The same where so many workers compute on one machine, as far as its `cores` go."""
        factor = self._slowed(min(workers, self.cores or workers))
        return replace(self, gradient_s=times(self.gradient_s, factor), server_s=times(self.server_s, factor))

    def share(self, shards: int) -> float:
        """Of the largest of so many shards: whose server, and whose link where it has one, is the limit."""
        return self.shard_shares.get(shards, 1 / shards)

    def _slowed(self, at_once: int) -> float:
        before, factor = 1, 1.0
        for number in sorted(self.slowdown):
            if at_once <= number:
                share = (at_once - before) / (number - before)
                return factor + share * (self.slowdown[number] - factor)
            before, factor = number, self.slowdown[number]
        return factor

    def clock(self, workers: int, shards: int = 1, through: Network | None = None) -> ClockSettings:
        """The declared times of a run; ValueError, naming key and remedy, where they are none."""
        joined = through or self.network
        bandwidth = joined.server_link.bandwidth
        if self.server_machines == "each" and isinstance(bandwidth, float):
            bandwidth = bandwidth / self.share(shards)  # a push is through when the largest part is
        return ClockSettings(
            self.gradient_s,
            {worker: factor for worker, factor in self.stragglers.items() if worker < workers},
            times(self.server_s, self.share(shards)),
            joined.link,
            server_link=Link(joined.server_link.latency_s, bandwidth),
        )


def mean(value: Seconds) -> float:
    """Of a number, itself."""
    return value.mean if isinstance(value, Distribution) else value


def times(value: Seconds, factor: float) -> Seconds:
    """The same distribution, so many times as long."""
    if isinstance(value, Distribution):
        return Distribution(value.kind, value.mean * factor, value.cv)
    return value * factor


# --- in files --------------------------------------------------------------------------------------------------------

KEYS: Final = (
    "title", "source", "gradient", "batch_size", "parameters", "push", "pull", "server", "copy_bandwidth",
    "stragglers", "cores", "slowdown", "network", "link", "server_link", "server_machines", "shard_shares", "sparse",
)  # fmt: skip


def load_profile(path: Path) -> Profile:
    """Of a YAML file; ConfigError, naming key and remedy, for what is no profile."""
    raw = records.mapping(path.resolve())
    if raw is None:
        raise ConfigError("--profile", f"there is no file {path}", "Write one; README, Planning, shows how.")
    return read_profile(raw)


def read_profile(raw: Mapping[str, Any]) -> Profile:
    """What a person has written, or `as_mapping`; ConfigError, naming key and remedy, for what is no profile."""
    for key in raw:
        if key not in KEYS:
            raise ConfigError(f"profile.{key}", "unknown key", f"Known: {', '.join(KEYS)}.")
    if "gradient" not in raw:
        raise ConfigError("profile.gradient", "is missing", "Write the seconds of one gradient, as 180 ms.")
    push, pull = _bytes(raw, "push"), _bytes(raw, "pull")
    made = Profile(
        gradient_s=_seconds(raw["gradient"], "profile.gradient"),
        batch_size=_whole(raw.get("batch_size", 1), "profile.batch_size"),
        push_bytes=push,
        pull_bytes=pull,
        server_s=_server(raw, push),
        stragglers=_by_number(raw.get("stragglers", {}), "profile.stragglers"),
        cores=None if raw.get("cores") is None else _whole(raw["cores"], "profile.cores"),
        slowdown=_by_number(raw.get("slowdown", {}), "profile.slowdown"),
        network=_network(raw),
        server_machines=_machines(raw.get("server_machines", "one")),
        shard_shares=_by_number(raw.get("shard_shares", {}), "profile.shard_shares"),
        sparse=_yes(raw.get("sparse", False), "profile.sparse"),
        title=str(raw.get("title", Profile.title)),
        source=str(raw.get("source", Profile.source)),
    )
    if not made.gradient_mean_s:
        raise ConfigError("profile.gradient", "is 0 s", "Write the seconds of one gradient, as 180 ms.")
    for shards, share in made.shard_shares.items():
        if not 0 < share <= 1:
            raise ConfigError(f"profile.shard_shares.{shards}", f"is {share:g}", "Write a share, from 0 to 1.")
    for number in made.slowdown:
        if number < 2:
            raise ConfigError(f"profile.slowdown.{number}", "is less than 2 workers", "Write it as {2: 1.3}.")
    try:
        check(Profile, vars(made), "profile")
        for number, factor in made.slowdown.items():
            Above(0).refuse(f"profile.slowdown.{number}", factor)
        for worker, factor in made.stragglers.items():
            Above(0).refuse(f"profile.stragglers.{worker}", factor)
    except ValueError as error:
        raise ConfigError.said_by(error) from None
    return made


def as_mapping(profile: Profile) -> dict[str, Any]:
    """What `read_profile` makes the same profile of; plain numbers, for YAML and JSON."""
    written: dict[str, Any] = {
        "title": profile.title,
        "source": profile.source,
        "gradient": _written(profile.gradient_s),
        "batch_size": profile.batch_size,
        "push": profile.push_bytes,
        "pull": profile.pull_bytes,
        "server": _written(profile.server_s),
        "link": _written_link(profile.network.link),
        "server_link": _written_link(profile.network.server_link),
        "server_machines": profile.server_machines,
    }
    if profile.stragglers:
        written["stragglers"] = {str(worker): factor for worker, factor in profile.stragglers.items()}
    if profile.shard_shares:
        written["shard_shares"] = {str(shards): share for shards, share in profile.shard_shares.items()}
    if profile.sparse:
        written["sparse"] = True
    if profile.cores is not None:
        written["cores"] = profile.cores
    if profile.slowdown:
        written["slowdown"] = {str(number): factor for number, factor in profile.slowdown.items()}
    return written


def _yes(written: object, key: str) -> bool:
    if not isinstance(written, bool):
        raise ConfigError(key, f"is {written!r}", "Write true or false.")
    return written


def _bytes(raw: Mapping[str, Any], way: str) -> float:
    if way in raw:
        return quantity(raw[way], "B", f"profile.{way}")
    if "parameters" not in raw:
        raise ConfigError(f"profile.{way}", "is missing", "Write parameters: 100 MB, or push and pull one by one.")
    return quantity(raw["parameters"], "B", "profile.parameters")


def _server(raw: Mapping[str, Any], push_bytes: float) -> Seconds:
    if "server" in raw:
        if "copy_bandwidth" in raw:
            raise ConfigError("profile.copy_bandwidth", "has no effect beside `server`", "Remove one of them.")
        return _seconds(raw["server"], "profile.server")
    bandwidth = quantity(raw.get("copy_bandwidth", COPY_BANDWIDTH), "B/s", "profile.copy_bandwidth")
    if not bandwidth:
        raise ConfigError("profile.copy_bandwidth", "is 0", "Write the bytes a second of a copy in memory, as 10 GB/s.")
    return PASSES * push_bytes / bandwidth


def _seconds(written: object, key: str) -> Seconds:
    if not isinstance(written, Mapping):
        return quantity(written, "s", key)
    for name in written:
        if name not in ("kind", "mean", "cv"):
            raise ConfigError(f"{key}.{name}", "unknown key", "Known: kind, mean, cv.")
    if "mean" not in written:
        raise ConfigError(f"{key}.mean", "is missing", "Write {kind: gamma, mean: 180 ms, cv: 0.1}.")
    kind: DistributionName = written.get("kind", "gamma")
    cv = written.get("cv")
    if cv is not None and (isinstance(cv, bool) or not isinstance(cv, int | float)):
        raise ConfigError(f"{key}.cv", f"is {cv!r}, not a number", "Write standard deviation / mean, as 0.1.")
    made = Distribution(kind, quantity(written["mean"], "s", f"{key}.mean"), cv)
    try:
        made.check(key)
    except ValueError as error:
        raise ConfigError.said_by(error) from None
    return made


def _network(raw: Mapping[str, Any]) -> Network:
    if "network" in raw:
        return network(raw["network"], "profile.network")
    return Network(
        read_link(raw.get("link", {}), "profile.link"), read_link(raw.get("server_link", {}), "profile.server_link")
    )


def _whole(written: object, key: str) -> int:
    if isinstance(written, bool) or not isinstance(written, int):
        raise ConfigError(key, f"is {written!r}, not a whole number", "Write one, as 32.")
    return written


def _by_number(written: object, key: str) -> dict[int, float]:
    if not isinstance(written, Mapping) or not all(str(number).isdecimal() for number in written):
        raise ConfigError(key, f"is {written!r}, not a mapping of numbers", "Write it as {3: 2.0}.")
    for number, value in written.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{key}.{number}", f"is {value!r}, not a number", "Write one, as 2.0.")
    return {int(number): float(value) for number, value in written.items()}


def _machines(written: object) -> Machines:
    for known in get_args(Machines):
        if written == known:
            chosen: Machines = known
            return chosen
    raise ConfigError("profile.server_machines", f"is {written!r}", "Write one, or each.")


def _written(value: Seconds) -> Any:
    if not isinstance(value, Distribution):
        return value
    return {"kind": value.kind, "mean": value.mean} | ({} if value.cv is None else {"cv": value.cv})


def _written_link(link: Link) -> dict[str, Any]:
    """Of a link by a profile, whose bandwidth and latency are numbers."""
    return {"latency": link.latency_s, "bandwidth": link.bandwidth}
