"""What the speed of a system depends on: measured on this machine, or written by hand for another."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from scalebook.training.base import ConfigError
from scalebook.training.base.files import records
from scalebook.training.engine.rules import (
    Above,
    ArgumentError,
    AtLeast,
    Bandwidth,
    ClockSettings,
    Distribution,
    DistributionName,
    Link,
    Seconds,
    check_limits,
)
from scalebook.training.pricing.layers import Layer, read_layers, written_layers
from scalebook.training.pricing.links import Network, network, read_link
from scalebook.training.pricing.quantities import quantity

Machines = Literal["one", "each", "workers"]
Algorithm = Literal["ring", "tree", "fastest"]
PASSES: Final = 3
"""Passes of a plain SGD update over memory: read parameters and gradient, write parameters."""
COPY_BANDWIDTH: Final = 1e10
"""Bytes a second that a server copies unless the profile says otherwise: one core of a present-day server."""


@dataclass(frozen=True)
class SharedNode:
    """A node with several workers, which share its link to the others. `link`: what joins them within."""

    workers: int
    link: Link = field(default_factory=Link)


@dataclass(frozen=True)
class Software:
    """The cost of sending and receiving beside the link. `message_s`: of one end for one message; `bandwidth`: bytes a
    second that one core copies, while they travel."""

    message_s: float = 0.0
    bandwidth: float | None = None


@dataclass(frozen=True)
class Profile:
    """One system: a model at its batch size, the machines that compute and serve, and the network between them.

    Args:
        gradient_s: Seconds of one gradient: fetching, forward and backward.
        batch_size: Samples of one gradient.
        push_bytes: Bytes of a gradient as it is sent.
        pull_bytes: Bytes of the parameters as they are sent.
        server_s: Seconds that one shard with all parameters needs to serve a push.
        update_s: Seconds that a worker without a server needs for an update from a summed gradient. 0 by default, where
            it is part of `gradient_s`.
        stragglers: Factors by which single workers take longer, by worker number.
        cores: Gradients that workers on a shared machine can compute at the same time, on its cores or GPUs. Null: each
            worker has its own core.
        network: The network between workers and servers.
        server_machines: `one`: one machine serves all shards, which share its link. `each`: each shard has its own
            machine and link. `workers`: shards are spread over the workers' machines, whose links carry the traffic of
            both the worker and the shards there.
        server_cores: Cores of a machine that serves. Each shard is served by one core, so if there are more shards than
            cores, they take turns. Null: one core for each shard.
        software: The cost of sending and receiving at both ends, in addition to the link. Null: no cost, as within a
            machine.
        shard_shares: The share of the largest shard, by the number of shards, if shards differ in size.
        slowdown: Factors by which a gradient and its push take longer, by how many are computed at the same time on a
            shared machine: they compete for caches, memory bandwidth and turbo. Linear between these numbers, and from
            1 worker on.
        sparse: Whether part of the model is sparse tables, whose rows are sent uncompressed. Then the plan does not
            offer codecs, sums or local steps, and offers more shards only where `shard_shares` has their shares.
        node: Machines with several workers each: `network` then connects the machines, and the workers of one machine
            share its link. Null: each worker has its own link.
        ready: When gradients of a backward pass are ready, as a share of `gradient_s`, and how many bytes, in this
            order. Empty: evenly over the last two thirds of `gradient_s`.
        overlap: Whether an all-reduce is sent while gradients are computed. False if the cores that compute also send.
        all_reduce: `ring`, `tree`, or `fastest`: the faster of the two for each bucket, as NCCL chooses.
        weights: Bytes of the parameters in a worker's memory; 0: as many as `pull_bytes`.
        state: Bytes of the optimizer's state for all parameters; 0: none, as with plain SGD, or not known.
        layers: The model's layers, for plans that split the model; empty: not known.
        memory: Bytes of memory that a worker has; 0: not known.
        microbatches: Factors by which a batch takes longer if it is divided into so many microbatches, each of which
            reads all parameters. Linear between these numbers, from 1 on, and beyond the last two.
        busy: Cores that other processes used during the measurement. If this is not 0, the measured times are too long.
        apart: Factor between the times of two measurements, if the machine was busy during both.
        gpus: Number of GPUs that workers on a shared machine use to compute gradients. 0: they use its cores.
        title: What the profile describes.
        source: Where the numbers come from.
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
    server_cores: Annotated[int, AtLeast(1, "1 or more, or null")] | None = None
    software: Software | None = None
    shard_shares: Mapping[int, float] = field(default_factory=dict)
    slowdown: Mapping[int, float] = field(default_factory=dict)
    sparse: bool = False
    node: SharedNode | None = None
    update_s: float = 0.0
    ready: Sequence[tuple[float, float]] = ()
    overlap: bool = True
    all_reduce: Algorithm = "fastest"
    weights: Annotated[float, AtLeast(0)] = 0.0
    state: Annotated[float, AtLeast(0)] = 0.0
    layers: Sequence[Layer] = ()
    memory: Annotated[float, AtLeast(0)] = 0.0
    microbatches: Mapping[int, float] = field(default_factory=dict)
    busy: Annotated[float, AtLeast(0)] = 0.0
    apart: Annotated[float, AtLeast(1)] = 1.0
    gpus: Annotated[int, AtLeast(0)] = 0
    title: str = "a system"
    source: str = "written by hand"

    @property
    def gradient_mean_s(self) -> float:
        """Mean over the workers that are no stragglers."""
        return mean_s(self.gradient_s)

    def shared_by(self, workers: int) -> "Profile":
        """The profile with the slowdown of `workers` on one machine, as far as its `cores` go."""
        factor = self._slowed(min(workers, self.cores or workers))
        return replace(
            self,
            gradient_s=scaled_s(self.gradient_s, factor),
            server_s=scaled_s(self.server_s, factor),
            update_s=self.update_s * factor,
        )

    @property
    def doubt(self) -> float:
        """Factor by which its times may be off since the machine was busy: the difference of its two measurements, but
        at least the share of the cores that others took, in case they took as much in both."""
        if not self.busy:
            return 1.0
        return max(self.apart, 1 + self.busy / (self.server_cores or self.cores or 1))

    def apart_from(self, other: "Profile") -> float:
        """The factor between the times of both, of a gradient and its update by one worker or by one per core."""
        cores = max(self.cores or 1, other.cores or 1)
        ours, theirs = (
            [mean_s(slow.gradient_s) + mean_s(slow.server_s) for slow in map(profile.shared_by, (1, cores))]
            for profile in (self, other)
        )
        return max(max(one, two) / min(one, two) for one, two in zip(ours, theirs, strict=True))

    def share(self, shards: int) -> float:
        """Share of the largest of `shards` shards, whose server, and whose link if it has one, is the limit."""
        return self.shard_shares.get(shards, 1 / shards)

    def in_microbatches(self, count: int) -> float:
        """The factor by which a batch takes longer in so many microbatches."""
        return _on_line(self.microbatches, count)

    def _slowed(self, at_once: int) -> float:
        return _on_line(self.slowdown, min(at_once, max(self.slowdown, default=1)))

    def clock(self, workers: int, shards: int = 1, through: Network | None = None) -> ClockSettings:
        """The declared times of a run; ValueError, naming key and remedy, if they are invalid."""
        joined, software = through or self.network, self.software or Software()
        served_s = scaled_s(
            self.server_s, max(self.share(shards), self._on_one(shards, workers) / (self.server_cores or shards))
        )
        return ClockSettings(
            self.gradient_s,
            {worker: factor for worker, factor in self.stragglers.items() if worker < workers},
            delayed_s(served_s, 2 * software.message_s),
            self._worker_link(joined.link, workers, software),
            server_link=self._server_link(joined, shards, workers, software),
        )

    def _on_one(self, shards: int, workers: int) -> float:
        """The share of the parameters that the machine with most of them serves."""
        machines = {"one": 1, "each": shards, "workers": self._machines(workers)}[self.server_machines]
        return max(self.share(shards), 1 / min(shards, machines))

    def _machines(self, workers: int) -> int:
        return math.ceil(workers / self.node.workers) if self.node else workers

    def _worker_link(self, link: Link, workers: int, software: Software) -> Link:
        """Of each worker of those that share a machine's; software copies while bytes travel."""
        bandwidth = link.bandwidth
        if self.node is not None and isinstance(bandwidth, float):
            bandwidth = bandwidth / min(self.node.workers, workers)
        latency_s = delayed_s(link.latency_s, software.message_s)
        return Link(latency_s, _slower(bandwidth, software.bandwidth))

    def _server_link(self, joined: Network, shards: int, workers: int, software: Software) -> Link:
        bandwidth, most = joined.server_link.bandwidth, self._on_one(shards, workers)
        if self.server_machines == "workers":
            bandwidth = self._shared_bandwidth(joined.link.bandwidth, most, workers)
        elif isinstance(bandwidth, float):
            bandwidth = bandwidth / most  # a push is through when the largest part is
        copied = None
        if software.bandwidth is not None and self.server_cores is not None:
            copied = software.bandwidth * self.server_cores / most
        return Link(joined.server_link.latency_s, _slower(bandwidth, copied))

    def _shared_bandwidth(self, bandwidth: Bandwidth, most: float, workers: int) -> Bandwidth:
        """Of the link of the machine with the largest part, as what all push or pull passes it in the same time: with
        each gradient come the pushes of all elsewhere to its part, and what its own workers pull from elsewhere; and
        the same the other way."""
        local_workers = min(self.node.workers if self.node else 1, workers)
        push, pull = self.push_bytes, self.pull_bytes
        comes, goes = (
            (workers - local_workers) * most * there + local_workers * (1 - most) * own
            for there, own in ((push, pull), (pull, push))
        )
        slowest = max(comes / (workers * push) if push else 0.0, goes / (workers * pull) if pull else 0.0)
        return bandwidth / slowest if isinstance(bandwidth, float) and slowest else None


def delayed_s(value: Seconds, seconds: float) -> Seconds:
    """Each draw `seconds` longer, with the same spread."""
    if not isinstance(value, Distribution) or not seconds:
        return value if isinstance(value, Distribution) else value + seconds
    whole = value.mean + seconds
    return Distribution("gamma" if value.kind == "exponential" else value.kind, whole,
                        (1.0 if value.kind == "exponential" else value.cv or 0.0) * value.mean / whole)  # fmt: skip


def _slower(one: Bandwidth, other: float | None) -> Bandwidth:
    """Of two that work at the same time; null: no limit."""
    if isinstance(one, Distribution) or other is None:
        return one
    return other if one is None else min(one, other)


def _on_line(factors: Mapping[int, float], number: int) -> float:
    """The factor at a number: 1 at 1, linear between those that are given, and beyond the last two."""
    pairs = [(1, 1.0), *sorted(factors.items())]
    for (before, factor), (after, next_factor) in pairwise(pairs):
        if number <= after or after == pairs[-1][0]:
            return factor + (number - before) / (after - before) * (next_factor - factor)
    return 1.0


def mean_s(value: Seconds) -> float:
    """The mean of a distribution; a number itself."""
    return value.mean if isinstance(value, Distribution) else value


def scaled_s(value: Seconds, factor: float) -> Seconds:
    """The same distribution, `factor` times as long."""
    if isinstance(value, Distribution):
        return Distribution(value.kind, value.mean * factor, value.cv)
    return value * factor


# --- in files --------------------------------------------------------------------------------------------------------

KEYS: Final = (
    "title", "source", "gradient", "batch_size", "parameters", "push", "pull", "server", "copy_bandwidth",
    "stragglers", "cores", "gpus", "slowdown", "network", "link", "server_link", "server_machines", "shard_shares",
    "sparse", "server_cores", "software", "update", "node", "ready", "overlap", "all_reduce", "weights", "state",
    "layers", "memory", "microbatches", "busy", "apart",
)  # fmt: skip


def load_profile(path: Path) -> Profile:
    """The profile in a YAML file; ConfigError, naming key and remedy, if it is none."""
    raw = records.mapping(path.resolve())
    if raw is None:
        raise ConfigError("--profile", f"there is no file {path}", "Create the file as docs/concepts/planner.md shows.")
    return read_profile(raw)


def read_profile(raw: Mapping[str, Any]) -> Profile:
    """The profile that a person has written, or `as_mapping`; ConfigError, naming key and remedy, if it is none."""
    for key in raw:
        if key not in KEYS:
            raise ConfigError(f"profile.{key}", "unknown key", f"Known: {', '.join(KEYS)}.")
    if "gradient" not in raw:
        raise ConfigError(
            "profile.gradient", "is missing", "Set it to the time that one gradient takes, such as 180 ms."
        )
    push, pull = _bytes(raw, "push"), _bytes(raw, "pull")
    gradient_s = _seconds(raw["gradient"], "profile.gradient")
    made = Profile(
        gradient_s=gradient_s,
        batch_size=_whole(raw.get("batch_size", 1), "profile.batch_size"),
        push_bytes=push,
        pull_bytes=pull,
        server_s=_server(raw, push),
        update_s=quantity(raw.get("update", 0.0), "s", "profile.update"),
        stragglers=_by_number(raw.get("stragglers", {}), "profile.stragglers"),
        cores=None if raw.get("cores") is None else _whole(raw["cores"], "profile.cores"),
        gpus=_whole(raw.get("gpus", 0), "profile.gpus"),
        slowdown=_by_number(raw.get("slowdown", {}), "profile.slowdown"),
        network=_network(raw),
        server_machines=_machines(raw.get("server_machines", "one")),
        server_cores=None if raw.get("server_cores") is None else _whole(raw["server_cores"], "profile.server_cores"),
        software=None if raw.get("software") is None else _software(raw["software"]),
        shard_shares=_by_number(raw.get("shard_shares", {}), "profile.shard_shares"),
        sparse=_yes(raw.get("sparse", False), "profile.sparse"),
        node=None if raw.get("node") is None else _node(raw["node"]),
        ready=_ready(raw.get("ready", [])),
        overlap=_yes(raw.get("overlap", True), "profile.overlap"),
        all_reduce=_algorithm(raw.get("all_reduce", "fastest")),
        weights=quantity(raw.get("weights", 0.0), "B", "profile.weights"),
        state=quantity(raw.get("state", 0.0), "B", "profile.state"),
        layers=read_layers(raw.get("layers", []), mean_s(gradient_s)),
        memory=quantity(raw.get("memory", 0.0), "B", "profile.memory"),
        microbatches=_by_number(raw.get("microbatches", {}), "profile.microbatches"),
        busy=_number(raw.get("busy", 0.0), "profile.busy"),
        apart=_number(raw.get("apart", 1.0), "profile.apart"),
        title=str(raw.get("title", Profile.title)),
        source=str(raw.get("source", Profile.source)),
    )
    _refuse_wrong(made)
    return made


def _refuse_wrong(made: Profile) -> None:
    """ConfigError for values that are out of bounds, or contradict each other."""
    if not made.gradient_mean_s:
        raise ConfigError("profile.gradient", "is 0 s", "Set it to the time that one gradient takes, such as 180 ms.")
    if made.server_cores is not None and made.server_machines == "each":
        why = "has no effect with server_machines: each, because there each shard is served by one core"
        raise ConfigError(
            "profile.server_cores", why, "Remove it, or set server_machines: one or server_machines: workers."
        )
    for shards, share in made.shard_shares.items():
        if not 0 < share <= 1:
            raise ConfigError(f"profile.shard_shares.{shards}", f"is {share:g}", "Use a share above 0 and at most 1.")
    for name, numbers in (("slowdown", made.slowdown), ("microbatches", made.microbatches)):
        for number in numbers:
            if number < 2:
                raise ConfigError(f"profile.{name}.{number}", "is not 2 or more", "Use 2 or more, as in {2: 1.3}.")
    try:
        check_limits(Profile, vars(made), "profile")
        for number, factor in made.slowdown.items():
            Above(0).refuse(f"profile.slowdown.{number}", factor)
        for number, factor in made.microbatches.items():
            AtLeast(1).refuse(f"profile.microbatches.{number}", factor)
        for worker, factor in made.stragglers.items():
            Above(0).refuse(f"profile.stragglers.{worker}", factor)
    except ArgumentError as error:
        raise ConfigError(error.argument, error.message, error.fix, error.code) from None


def profile_mapping(profile: Profile) -> dict[str, Any]:
    """The inverse of `read_profile`: plain numbers, for YAML and JSON."""
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
    if profile.server_cores is not None:
        written["server_cores"] = profile.server_cores
    if profile.software is not None:
        written["software"] = {"message": profile.software.message_s, "bandwidth": profile.software.bandwidth}
    by_number = {"stragglers": profile.stragglers, "shard_shares": profile.shard_shares, "slowdown": profile.slowdown,
                 "microbatches": profile.microbatches}  # fmt: skip
    for name, values in by_number.items():
        if values:
            written[name] = {str(number): value for number, value in values.items()}
    if profile.sparse:
        written["sparse"] = True
    numbers = {"weights": profile.weights, "state": profile.state, "memory": profile.memory, "busy": profile.busy,
               "update": profile.update_s, "gpus": profile.gpus, "cores": profile.cores}  # fmt: skip
    written |= {name: value for name, value in numbers.items() if value}
    if profile.apart != 1:
        written["apart"] = profile.apart
    if profile.layers:
        written["layers"] = written_layers(profile.layers)
    if profile.node is not None:
        written["node"] = {"workers": profile.node.workers, "link": _written_link(profile.node.link)}
    if profile.ready:
        written["ready"] = [[share, nbytes] for share, nbytes in profile.ready]
    if not profile.overlap:
        written["overlap"] = False
    if profile.all_reduce != "fastest":
        written["all_reduce"] = profile.all_reduce
    return written


def _number(written: object, key: str) -> float:
    if isinstance(written, bool) or not isinstance(written, int | float):
        raise ConfigError(key, f"is {written!r}, not a number", "Use a number, such as 0.5.")
    return float(written)


def _node(written: object) -> SharedNode:
    """`{workers: 8, link: nvlink}`."""
    if not isinstance(written, Mapping) or "workers" not in written:
        raise ConfigError("profile.node", f"is {written!r}", "Use the form {workers: 8, link: nvlink}.")
    for name in written:
        if name not in ("workers", "link"):
            raise ConfigError(f"profile.node.{name}", "unknown key", "Known: workers, link.")
    workers = _whole(written["workers"], "profile.node.workers")
    if workers < 1:
        raise ConfigError("profile.node.workers", f"is {workers}", "Use 1 or more.")
    return SharedNode(workers, network(written.get("link", {}), "profile.node.link").link)


def _software(written: object) -> Software:
    """`{message: 50 us, bandwidth: 2 GB/s}`, either may be missing."""
    link = read_link(written, "profile.software", "message")
    assert not isinstance(link.latency_s, Distribution | str)
    assert isinstance(link.bandwidth, float | None)
    return Software(link.latency_s, link.bandwidth)


def _ready(written: object) -> tuple[tuple[float, float], ...]:
    """`[[0.5, 10 MB], [1, 15 MB]]`."""
    key, fix = (
        "profile.ready",
        "Use pairs of a share of the gradient's time and the bytes ready then, such as [[0.5, 10 MB], [1, 15 MB]].",
    )
    if not isinstance(written, list | tuple):
        raise ConfigError(key, f"is {written!r}", fix)
    made, before = [], 0.0
    for pair in written:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], int | float):
            raise ConfigError(key, f"has {pair!r}", fix)
        if not before <= pair[0] <= 1:
            raise ConfigError(key, f"has {pair[0]!r}", "Use shares from 0 to 1, smallest first.")
        before = float(pair[0])
        made.append((before, quantity(pair[1], "B", key)))
    return tuple(made)


def _algorithm(written: object) -> Algorithm:
    for choice in get_args(Algorithm):
        if written == choice:
            chosen: Algorithm = choice
            return chosen
    raise ConfigError("profile.all_reduce", f"is {written!r}", f"Use one of {', '.join(get_args(Algorithm))}.")


def _yes(written: object, key: str) -> bool:
    if not isinstance(written, bool):
        raise ConfigError(key, f"is {written!r}", "Use true or false.")
    return written


def _bytes(raw: Mapping[str, Any], way: str) -> float:
    if way in raw:
        return quantity(raw[way], "B", f"profile.{way}")
    if "parameters" not in raw:
        raise ConfigError(f"profile.{way}", "is missing", "Set parameters: 100 MB, or set push and pull separately.")
    return quantity(raw["parameters"], "B", "profile.parameters")


def _server(raw: Mapping[str, Any], push_bytes: float) -> Seconds:
    if "server" in raw:
        if "copy_bandwidth" in raw:
            raise ConfigError(
                "profile.copy_bandwidth", "has no effect with `server`", "Remove copy_bandwidth or server."
            )
        return _seconds(raw["server"], "profile.server")
    bandwidth = quantity(raw.get("copy_bandwidth", COPY_BANDWIDTH), "B/s", "profile.copy_bandwidth")
    if not bandwidth:
        raise ConfigError("profile.copy_bandwidth", "is 0", "Set it to the speed of a copy in memory, such as 10 GB/s.")
    return PASSES * push_bytes / bandwidth


def _seconds(written: object, key: str) -> Seconds:
    if not isinstance(written, Mapping):
        return quantity(written, "s", key)
    for name in written:
        if name not in ("kind", "mean", "cv"):
            raise ConfigError(f"{key}.{name}", "unknown key", "Known: kind, mean, cv.")
    if "mean" not in written:
        raise ConfigError(f"{key}.mean", "is missing", "Use the form {kind: gamma, mean: 180 ms, cv: 0.1}.")
    kind: DistributionName = written.get("kind", "gamma")
    cv = written.get("cv")
    if cv is not None and (isinstance(cv, bool) or not isinstance(cv, int | float)):
        raise ConfigError(
            f"{key}.cv", f"is {cv!r}, not a number", "Set it to the standard deviation over the mean, such as 0.1."
        )
    made = Distribution(kind, quantity(written["mean"], "s", f"{key}.mean"), cv)
    try:
        made.check(key)
    except ArgumentError as error:
        raise ConfigError(error.argument, error.message, error.fix, error.code) from None
    return made


def _network(raw: Mapping[str, Any]) -> Network:
    if "network" in raw:
        return network(raw["network"], "profile.network")
    return Network(
        read_link(raw.get("link", {}), "profile.link"), read_link(raw.get("server_link", {}), "profile.server_link")
    )


def _whole(written: object, key: str) -> int:
    if isinstance(written, bool) or not isinstance(written, int):
        raise ConfigError(key, f"is {written!r}, not a whole number", "Use a whole number, such as 32.")
    return written


def _by_number(written: object, key: str) -> dict[int, float]:
    if not isinstance(written, Mapping) or not all(str(number).isdecimal() for number in written):
        raise ConfigError(key, f"is {written!r}, not a mapping from numbers to numbers", "Use the form {3: 2.0}.")
    for number, value in written.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{key}.{number}", f"is {value!r}, not a number", "Use a number, such as 2.0.")
    return {int(number): float(value) for number, value in written.items()}


def _machines(written: object) -> Machines:
    for choice in get_args(Machines):
        if written == choice:
            chosen: Machines = choice
            return chosen
    raise ConfigError("profile.server_machines", f"is {written!r}", "Use `one`, `each` or `workers`.")


def _written(value: Seconds) -> Any:
    if not isinstance(value, Distribution):
        return value
    return {"kind": value.kind, "mean": value.mean} | ({} if value.cv is None else {"cv": value.cv})


def _written_link(link: Link) -> dict[str, Any]:
    """Of a link by a profile, whose bandwidth and latency are numbers."""
    return {"latency": link.latency_s, "bandwidth": link.bandwidth}
