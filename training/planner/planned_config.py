"""What a config's strategy means for a plan: the settings to simulate, and the strategy that measures their parts.

Loads no torch. What a plan does not understand is a ConfigError by key and remedy, before anything is measured.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from scalebook.training.base import ConfigError
from scalebook.training.engine.rules import (
    RECORDED,
    Async,
    ClockSettings,
    Distribution,
    DPsgd,
    Fp32,
    Peering,
    Ring,
    Rule,
    Settings,
    Significance,
    made_clock,
)
from scalebook.training.experiments import (
    AsyncPSSettings,
    ClassInfo,
    DDPSettings,
    Experiment,
    ModelParallelSettings,
    PeersSettings,
    SingleProcess,
    Strategy,
    as_config_errors,
    choice,
    classes,
    key_of,
)
from scalebook.training.planner.all_reduce import AllReduce, WithoutServer
from scalebook.training.planner.planned_peers import PlannedPeers
from scalebook.training.pricing import Network, Profile, links, mean_s, reductions, scaled, scaled_s

STRATEGY: Final = "scalebook.training.lightning.AsyncPS"
FOLLOWED: Final = ("rule", "damping", "workers", "shards", "host", "clock", "local")
"""Arguments of AsyncPS that a simulation itself follows."""
MEASURED: Final = (
    "damping", "host", "buffers", "record", "push_codec", "pull_codec", "local",
)  # fmt: skip
"""Arguments that are kept while the parts are measured, so that their time and bytes are in the profile."""
INDIFFERENT: Final = ("warmup_updates", "limits", "tls")
"""Arguments that do not change the steady state of workers that never die: a beginning, deaths, a limit to waits, and
what only several nodes need."""


@dataclass(frozen=True)
class PlannedConfig:
    """What a plan takes from a config. `settings`: the engine's, but codecs are in the measured bytes. `beside`:
    settings not at their default, but for the rule, in words. `measuring`: arguments of the AsyncPS that measures."""

    experiment: Experiment
    settings: Settings
    measuring: dict[str, Any]
    beside: str = ""
    coded: bool = False
    """Whether a codec makes the measured bytes fewer than the parameters'."""
    without_server: WithoutServer | None = None
    """The strategy of a `ddp` or a `Peers` config."""

    @property
    def aggregation(self) -> Rule | WithoutServer:
        """The config's own rule, or its strategy without a server."""
        return self.without_server or self.settings.rule

    @property
    def is_simulated(self) -> bool:
        """Whether the config declares all times itself."""
        return self.settings.clock is not None

    def declared(self, profile: Profile) -> Profile:
        """The measured profile with the times that the config's clock declares; unchanged for real workers."""
        clock = self.settings.clock
        if clock is None:
            return profile
        return replace(
            profile,
            gradient_s=clock.gradient_s,
            server_s=scaled_s(clock.server_s, float(self.settings.shards)),
            update_s=mean_s(clock.server_s) * self.settings.shards,
            stragglers=dict(clock.stragglers),
            network=self._network(clock),
            cores=None,
            gpus=0,
            slowdown={},
            shard_shares={},
            server_cores=None,
            software=None,
            layers=scaled(profile.layers, mean_s(clock.gradient_s) / profile.gradient_mean_s),
            source=f"times from the config's clock; bytes {profile.source}",
        )

    def _network(self, clock: ClockSettings) -> Network:
        """What joins workers, of whom peers have a latency each at both ends of a message."""
        link = clock.link
        if isinstance(self.without_server, PlannedPeers):
            link = replace(link, latency_s=scaled_s(link.latency_s, 2.0))
        return Network(link, clock.server_link)


def configured(experiment: Experiment) -> PlannedConfig:
    """What a plan takes from an experiment. ConfigError for a strategy that cannot be planned as it is written."""
    strategy = experiment.strategy
    args, info = strategy.written, strategy.info
    if isinstance(strategy, SingleProcess):
        return PlannedConfig(experiment, Settings(), {}, "in place of one process")
    if isinstance(strategy, DDPSettings) and info is not None:
        return _ddp(experiment, args, info)
    if isinstance(strategy, PeersSettings) and info is not None:
        return _peers(experiment, args, info)
    if isinstance(strategy, ModelParallelSettings):
        fix = f"Set strategy: auto, and plan with --split {strategy.workers}."
        raise ConfigError(
            "trainer.strategy",
            "splits a model, but a config can be planned only if each worker has the whole model",
            fix,
        )
    if not isinstance(strategy, AsyncPSSettings) or info is None:
        why = f"is {strategy.name}, whose timing cannot be planned"
        raise ConfigError("trainer.strategy", why, "Use AsyncPS, Peers or ddp.")
    names = {*FOLLOWED, *MEASURED, *INDIFFERENT}
    for name in args:
        if name not in names:
            raise ConfigError(key_of(name), "cannot be planned", "Remove it.")
    settings = _settings(args, info)
    _refuse_local(settings)
    beside = _beside(strategy, settings)
    coded = settings.push_codec.codes or settings.pull_codec.codes
    return PlannedConfig(experiment, settings, _measuring(args, settings), beside, coded)


PEERS: Final = "scalebook.training.lightning.Peers"
PEERS_FOLLOWED: Final = ("workers", "exchange", "topology", "codec", "mixing", "every", "global_every", "host", "clock")
PEERS_INDIFFERENT: Final = ("buffers", "limits")
DDP_INDIFFERENT: Final = (
    "deadline_s", "find_unused_parameters", "gradient_as_bucket_view", "static_graph", "timeout", "precision_plugin",
)  # fmt: skip
"""Arguments of DDP whose seconds are in the measured gradient, or that do not change the steady state."""


def _ddp(experiment: Experiment, args: Mapping[str, Any], info: ClassInfo) -> PlannedConfig:
    """Gradients are summed up as they are, or in halves; frames of any other codec go from each worker to all."""
    names = ("codec", "bucket_cap_mb", *DDP_INDIFFERENT)
    for name in args:
        if name not in names:
            raise ConfigError(key_of(name), "cannot be planned", f"Remove it. Known: {', '.join(names)}.")
    cap = args.get("bucket_cap_mb", reductions.BUCKET_MB)
    if isinstance(cap, bool) or not isinstance(cap, int | float) or cap <= 0:
        raise ConfigError(key_of("bucket_cap_mb"), f"is {cap!r}", "Set it to a number of megabytes, such as 25.")
    codec = _made("codec", args, info) if args.get("codec") is not None else None
    if codec is None or not codec.codes:
        return PlannedConfig(experiment, Settings(), {}, without_server=AllReduce(bucket_mb=cap))
    if codec.in_halves:
        return PlannedConfig(
            experiment, Settings(), {}, f"gradients {codec.name}", without_server=AllReduce(bucket_mb=cap, parts=2)
        )
    measuring = {"push_codec": args["codec"]}
    words = experiment.strategy.words or ""
    return PlannedConfig(experiment, Settings(), measuring, words, True, AllReduce(bucket_mb=cap, gathers=True))


def _peers(experiment: Experiment, args: Mapping[str, Any], info: ClassInfo) -> PlannedConfig:
    for name in args:
        if name not in (*PEERS_FOLLOWED, *PEERS_INDIFFERENT):
            raise ConfigError(key_of(name), "cannot be planned", "Remove it.")
    made: dict[str, Any] = {
        name: _made(name, args, info) if name in args else standard
        for name, standard in (("exchange", DPsgd()), ("topology", Ring()), ("codec", Fp32()))
    }
    numbers = {name: args[name] for name in ("mixing", "every", "global_every") if name in args}
    with as_config_errors():
        peering = Peering(**made, **numbers)
        peering.check(Async(), experiment.strategy.workers)
        clock = None if args.get("clock") is None else made_clock(args["clock"])
        settings = Settings(clock=_declared(clock))
    coded = peering.codec.codes
    measuring = {"push_codec": args["codec"]} if coded else {}
    beside = (experiment.strategy.words or "").partition(", ")[2]
    return PlannedConfig(experiment, settings, measuring, beside, coded, PlannedPeers(peering))


def refuse_machines(strategy: Strategy, networks: Sequence[str]) -> int:
    """Workers of each node, if the config has several nodes with several workers each; otherwise 0. ConfigError if the
    network between nodes was not named."""
    if strategy.nodes == 1:
        return 0
    if links.OWN in networks:
        why = f"is {strategy.nodes}, and one node cannot measure the network between these nodes"
        raise ConfigError(
            "trainer.num_nodes", why, "Name the network, for example with --links 10gbe, or set num_nodes: 1."
        )
    each = strategy.workers // strategy.nodes
    return each if each > 1 else 0


def _settings(args: Mapping[str, Any], info: ClassInfo) -> Settings:
    objects = {
        name: _made(name, args, info)
        for name in ("rule", "damping", "push_codec", "pull_codec", "local")
        if name in args
    }
    plain = {name: args[name] for name in ("warmup_updates", "shards", "host") if name in args}
    plain["drift"] = args.get("record") == "drift"
    with as_config_errors():
        clock = None if args.get("clock") is None else made_clock(args["clock"])
        return Settings(**objects, **plain, clock=_declared(clock))


def _made(name: str, args: Mapping[str, Any], info: ClassInfo) -> Any:
    """The object of the class that an argument names."""
    key, chosen = key_of(name), choice(name, args, info)
    if chosen is None:
        raise ConfigError(
            key, f"is {args[name]!r}, which is not a class", "Use one of the classes that `scalebook describe` lists."
        )
    module, _, kind = chosen.info.class_path.rpartition(".")
    try:
        with as_config_errors():
            return getattr(importlib.import_module(module), kind)(**chosen.args)
    except (ImportError, AttributeError) as error:
        fix = "Start the command where the class can be imported, or plan with one of Scalebook's classes."
        raise ConfigError(key, f"is {chosen.info.class_path}, which cannot be imported ({error})", fix) from error


def _declared(clock: ClockSettings | None) -> ClockSettings | None:
    """A clock that a plan can play: of workers alike but for stragglers, each one machine, of whom none dies.
    ConfigError otherwise."""
    if clock is None:
        return None
    key = key_of("clock")
    if clock.deaths:
        raise ConfigError(f"{key}.deaths", "is set, but a plan cannot simulate workers that die", "Remove it.")
    if clock.links:
        raise ConfigError(f"{key}.links", "gives workers different links, but a plan has the same link for every "
                                          "worker",
                          "Set only `link`, or list the slow workers in `stragglers`.")  # fmt: skip
    if clock.group is not None:
        raise ConfigError(f"{key}.group", "makes groups of machines, but in a plan each worker is one machine",
                          "Remove it, and set gradient_s to the time of one gradient of a group.")  # fmt: skip
    for name in ("gradient_s", "server_s"):
        value = getattr(clock, name)
        if isinstance(value, Distribution) and value.kind == RECORDED:
            raise ConfigError(f"{key}.{name}.kind", "is recorded, but a plan needs a distribution that has a formula",
                              "Use kind: gamma, with the mean and cv of the recorded run.")  # fmt: skip
    for where in ("link", "server_link"):
        for name, value in vars(getattr(clock, where)).items():
            if isinstance(value, Distribution):
                raise ConfigError(f"{key}.{where}.{name}", "is a distribution, but a plan uses the same value for "
                                                           "every transfer",
                                  "Use the distribution's mean.")  # fmt: skip
    return clock


def _refuse_local(settings: Settings) -> None:
    local = settings.local
    if isinstance(local, Significance) or (local.steps and not hasattr(local, "period")):
        why = f"is {local.name}, whose pushes depend on the parameters, but a plan does not train any parameters"
        raise ConfigError(
            key_of("local"),
            why,
            "Use local_sgd, and set every to the number of steps that you expect between pushes, such as 16.",
        )


def _measuring(args: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Arguments of the workers that are measured: real ones, who wait for nobody but the server."""
    arguments = {name: args[name] for name in MEASURED if name in args and name != "host"}
    if settings.has_servers:
        arguments["host"] = "process"
    if settings.rule.synchronous and arguments.get("buffers") is None:
        arguments["buffers"] = "of_worker_0"
    return arguments


def _beside(strategy: AsyncPSSettings, settings: Settings) -> str:
    assert strategy.rule is not None, "it has a default"
    words = [(strategy.words or "").removeprefix(classes.in_words(strategy.rule)).strip(", ")]
    words += ["process servers"] if settings.has_servers else []
    words += ["overlap"] if settings.overlap else []
    return ", ".join(word for word in words if word)
