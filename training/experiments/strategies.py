"""The strategy of an experiment: one class for each kind, with the engine's own objects, made once and without torch.

What the engine's objects refuse becomes a problem of the strategy, so that it is reported before anything starts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Final

from scalebook.training.base import Problem
from scalebook.training.engine.rules import (
    CODECS,
    EXCHANGES,
    TOPOLOGIES,
    ArgumentError,
    Async,
    CheckedSettings,
    Codec,
    Complete,
    DampingFacts,
    LocalFacts,
    OnePeerExponential,
    PeerExchange,
    Peering,
    RuleFacts,
    find_contradictions,
    nobody_left,
    one_machine,
    read_clock,
    run_limits,
    unfit_for_nodes,
)
from scalebook.training.experiments.argument_keys import key_of, problem_of, problems_of
from scalebook.training.experiments.classes import ChosenClass, choose_class, in_words, mapping, positive, read_class
from scalebook.training.experiments.description import ClassInfo, Description
from scalebook.training.experiments.fields import check_args, check_value, quoted_value
from scalebook.training.experiments.pipeline_order import Schedule
from scalebook.training.experiments.split_degrees import PRECISIONS, refuse_degrees

STRATEGY_NAMES: Final = {
    "single": "one process",
    "ddp": "DDP",
    "AsyncPS": "parameter server",
    "Peers": "peers",
    "ModelParallel": "model parallel",
}
"""Names of strategies for people; a config names a strategy by its class."""
VIRTUAL: Final = "virtual"
"""The host with which one process simulates all workers."""
DIRECTIONS: Final = ("push_codec", "pull_codec", "codec")
"""Arguments of strategies that name a codec; `codec` is that of DDP and Peers."""


def strategy_words(name: str, rule: str | None, workers: int | str | None = None, simulated: bool = False) -> str:
    """`one process`, `DDP × 2`, `parameter server × 64 virtual, bounded, bound 3`; the number of workers where it is
    not 1."""
    many = f" × {workers}" if str(workers or 1) != "1" else ""
    many += " virtual" if simulated else ""
    return ", ".join(part for part in (f"{STRATEGY_NAMES.get(name, name)}{many}", rule or "") if part)


def choice(name: str, args: Mapping[str, Any], info: ClassInfo | None) -> ChosenClass | None:
    """The class that a strategy's argument `name` names, by default or by `args`; None where it names none."""
    fields = [one for one in info.fields if one.name == name and one.type == "class"] if info else []
    return next((choose_class(args.get(name, one.default), one) for one in fields), None)


def made_codec(chosen: ChosenClass) -> Codec | None:
    """The codec with its settings; None for a user's own, and for wrong arguments, which their own check reports."""
    kind = CODECS.get(chosen.word)
    if kind is None or check_args("", chosen.args, chosen.info.fields):
        return None
    return kind(**chosen.settings())


@dataclass(frozen=True)
class Strategy:
    """What every strategy has. Its subclasses are the kinds of strategies.

    Attributes:
        name: `single`, `ddp`, `AsyncPS`, `Peers`, `ModelParallel`, or the name of another class.
        info: The class; None where it is unknown.
        written: Its arguments as written.
        args: The same, with the default of each that is not written.
        trainer: The settings of the Trainer that it runs under, with their defaults.
    """

    name: str
    info: ClassInfo | None = field(repr=False)
    written: Mapping[str, Any]
    args: Mapping[str, Any] = field(repr=False)
    trainer: Mapping[str, Any] = field(repr=False)

    joins_engine: ClassVar[bool] = False
    """Whether the engine starts and connects its workers, with `workers` of their own, which may share GPUs, and which
    one process can simulate (`host: virtual`)."""

    @property
    def words(self) -> str | None:
        """Rule and modifiers in words: `bounded, bound 3`; `async, inverse damping, warm-up 100`. Of DDP how gradients
        are compressed: `gradients topk 0.01`. Of peers the exchange and the topology: `D-PSGD on ring`. Of a split
        model its degrees: `tensor 2, shard 2`; `stages 2, 1f1b`."""
        return _codec_words("codec", "gradients", self.args, self.info) or None

    @property
    def devices_written(self) -> int:
        """`trainer.devices` where it is a number, else 1."""
        return positive(self.trainer.get("devices")) or 1

    @property
    def nodes(self) -> int:
        """Nodes, each with as many of the workers."""
        return positive(self.trainer.get("num_nodes")) or 1

    @property
    def workers(self) -> int:
        """Workers of all nodes."""
        return (positive(self.args.get("workers")) or self.devices_written) * self.nodes

    @property
    def batches(self) -> int:
        """Different batches that they compute at a time: one each, but one for all of a tensor group or pipeline."""
        return self.workers

    @property
    def gradients(self) -> int:
        """Gradients that are averaged into one update: all workers' under DDP, one where a worker pushes by itself."""
        return 1

    @property
    def computed(self) -> int:
        """Gradients that are computed for one update, including those that are dropped."""
        return 1

    @property
    def batches_in_push(self) -> int:
        """Gradients of a worker for each of its pushes or exchanges, at most."""
        return 1

    @property
    def has_local_steps(self) -> bool:
        """Whether each worker makes steps of its own."""
        return False

    @property
    def is_simulated(self) -> bool:
        """Whether one process simulates all workers, and seconds are those of a declared clock."""
        return self.joins_engine and bool(self.args.get("host") == VIRTUAL)

    @property
    def processes(self) -> int:
        """Processes that train on each node: one for each of its workers, but a single one that simulates all."""
        return 1 if self.is_simulated else max(1, self.workers // self.nodes)

    @property
    def devices(self) -> int:
        """GPUs that it takes on each node, if it computes on them; no more than it has processes there."""
        return self.processes

    @property
    def least(self) -> int | None:
        """Workers with which it begins, if nodes may join and leave while it trains; None if they may not."""
        return positive(mapping(self.args.get("workers")).get("min"))

    @property
    def least_nodes(self) -> int:
        """Nodes with which it begins, if others may join later; else 0."""
        return 0 if self.least is None else -(-min(self.least, self.workers) // self.processes)

    @cached_property
    def codecs(self) -> dict[str, Codec]:
        """Its codecs, by the argument that names them."""
        names = [one.name for one in self.info.fields if one.name in DIRECTIONS] if self.info else []
        chosen = {name: choice(name, self.args, self.info) for name in names}
        made = {name: made_codec(one) for name, one in chosen.items() if one is not None}
        return {name: codec for name, codec in made.items() if codec is not None}

    def problems(self) -> Iterator[Problem]:
        """What the strategy refuses when it starts; and what would have no effect."""
        yield from ()


class SingleProcess(Strategy):
    """One process with one worker."""

    @property
    def nodes(self) -> int:
        return 1

    @property
    def workers(self) -> int:
        return 1

    @property
    def words(self) -> None:
        return None


class DDPSettings(Strategy):
    """One gradient of all workers at each step."""

    @property
    def gradients(self) -> int:
        return self.batches

    @property
    def computed(self) -> int:
        return self.batches


class OtherStrategy(Strategy):
    """A strategy that Scalebook does not know, or that the config has not named correctly yet."""


class EngineSettings(Strategy):
    """What AsyncPS and Peers have in common: workers that the engine starts and connects."""

    joins_engine = True

    @property
    def devices(self) -> int:
        return min(self.devices_written, self.processes)

    def _trainer_problems(self) -> Iterator[Problem]:
        if self.trainer.get("sync_batchnorm") and self.workers > 1:
            yield Problem(
                "contradiction",
                "trainer.sync_batchnorm",
                "needs a batch that all workers compute together, but this strategy has no such batch",
                "Use false, or use ddp. The strategy's buffers argument sets how workers share running statistics.",
            )

    def _limit_problems(self) -> list[Problem]:
        limits = self.args.get("limits")
        return [] if limits is None else problems_of(run_limits.read_limits, limits)


class AsyncPSSettings(EngineSettings):
    """A parameter server."""

    @cached_property
    def rule(self) -> ChosenClass | None:
        """The rule; None where the config names none that is known."""
        return choice("rule", self.args, self.info)

    @cached_property
    def damping(self) -> ChosenClass | None:
        return choice("damping", self.args, self.info)

    @cached_property
    def local(self) -> ChosenClass | None:
        return choice("local", self.args, self.info)

    @property
    def words(self) -> str | None:
        if self.rule is None:
            return _codec_words("codec", "gradients", self.args, self.info) or None
        warmup = positive(self.args.get("warmup_updates"))
        parts = [in_words(chosen) if chosen else "" for chosen in (self.rule, self.local, self.damping)]
        parts.append(_codec_words("push_codec", "pushes", self.args, self.info))
        parts += [_codec_words("pull_codec", "pulls", self.args, self.info), f"warm-up {warmup}" if warmup else ""]
        return ", ".join(part for part in parts if part)

    @property
    def gradients(self) -> int:
        facts = self.rule.info.rule if self.rule else None
        return 1 if self.rule is None or facts is None else facts.averaged(self.workers, self.rule.counts())

    @property
    def computed(self) -> int:
        facts = self.rule.info.rule if self.rule else None
        return 1 if self.rule is None or facts is None else facts.computed(self.workers, self.rule.counts())

    @property
    def local_facts(self) -> LocalFacts:
        """What its local steps declare; those of none where it makes none."""
        return (self.local.info.local if self.local else None) or LocalFacts("none")

    @property
    def has_local_steps(self) -> bool:
        return self.local_facts.steps

    @property
    def batches_in_push(self) -> int:
        return _between_pushes(self.local.settings()) if self.local else 1

    def problems(self) -> Iterator[Problem]:
        yield from self._trainer_problems()
        if self.nodes > 1:
            error = unfit_for_nodes(str(self.args.get("host")))
            yield from [problem_of(error)] if error else []
        if self.rule and self.damping:
            yield from self._rule_problems(self.rule, self.damping)
        if self.args.get("clock") is not None:
            yield from problems_of(read_clock, self.args["clock"], self.workers)
        yield from self._limit_problems()
        if self.workers == 1:
            restarts = mapping(self.args.get("limits")).get("restarts")
            for name, value in (("warmup_updates", self.args.get("warmup_updates")), ("limits.restarts", restarts)):
                if value:
                    yield _without_effect(name, "there is only one worker", "Use more workers.")

    def _rule_problems(self, rule: ChosenClass, damping: ChosenClass) -> Iterator[Problem]:
        facts, effect = rule.info.rule or RuleFacts(rule.word), damping.info.damping or DampingFacts(damping.word)
        counts = rule.counts()
        settings = CheckedSettings(
            facts, effect, str(self.args.get("host")), self.args.get("record") == "drift",
            self.args.get("clock") is not None, self.local_facts,
            bool(counts.get("cancel")) and counts.get("backup_workers", 0) > 0,
        )  # fmt: skip
        first = nobody_left(facts, counts, self.workers)
        for contradiction in ([first] if first else []) + find_contradictions(settings):
            yield problem_of(contradiction)
        yield from self._range_problems(facts, counts)
        if facts.synchronous and (effect.drops or effect.scales):
            why = f"with the rule {rule.word} every gradient is fresh"
            yield _without_effect("damping", why, "Use none, or another rule.")

    def _range_problems(self, rule: RuleFacts, counts: Mapping[str, int]) -> Iterator[Problem]:
        """Problems of `workers`, a number or `{min, max}`."""
        written = self.args.get("workers")
        if written is None or positive(written):
            return
        try:
            error = run_limits.misfit(
                run_limits.read_range(written), self.workers // self.nodes, self.nodes, rule, counts
            )
        except ArgumentError as refused:
            error = refused
        if error:
            yield problem_of(error)


class PeersSettings(EngineSettings):
    """Workers that exchange parameters with each other."""

    @cached_property
    def exchange(self) -> ChosenClass | None:
        """What peers do; None where the config names nothing that is known."""
        return choice("exchange", self.args, self.info)

    @cached_property
    def topology(self) -> ChosenClass | None:
        """With whom."""
        return choice("topology", self.args, self.info)

    @property
    def _exchange_class(self) -> type[PeerExchange] | None:
        return None if self.exchange is None else EXCHANGES.get(self.exchange.word)

    @property
    def words(self) -> str | None:
        if self._exchange_class is None or self.exchange is None:
            return _codec_words("codec", "gradients", self.args, self.info) or None
        first = self._exchange_class.words
        if self.topology is not None:
            first += f" on {in_words(self.topology)}"
        parts = [first, *(str(value).replace("_", " ") for value in self.exchange.non_defaults().values())]
        parts.append(_codec_words("codec", "codec", self.args, self.info))
        numbers = ((name, self.args.get(name)) for name in ("mixing", "every", "global_every"))
        parts += [f"{name.replace('_', ' ')} {value}" for name, value in numbers if value not in (None, 0, 1)]
        return ", ".join(part for part in parts if part)

    @property
    def gradients(self) -> int:
        return self.workers if self._exchange_class is not None and self._exchange_class.waits else 1

    @property
    def computed(self) -> int:
        return self.gradients

    @property
    def batches_in_push(self) -> int:
        return _between_pushes(self.args) if self._exchange_class else 1

    @property
    def has_local_steps(self) -> bool:
        return self._exchange_class is not None

    def peering(self) -> Peering | None:
        """The engine's object; None where the exchange has wrong arguments, which their own check reports. Other wrong
        arguments count as left out."""
        if self._exchange_class is None or self.exchange is None or self.info is None:
            return None
        if check_args("", self.exchange.args, self.exchange.info.fields):
            return None
        # a user's own topology is checked when it starts
        graph = TOPOLOGIES.get(self.topology.word, Complete) if self.topology else Complete
        numbers = {
            one.name: one.default if check_value("", self.args[one.name], one) else self.args[one.name]
            for one in self.info.fields
            if one.name in ("mixing", "every", "global_every")
        }
        return Peering(self._exchange_class(**self.exchange.args), graph(), self.codecs.get("codec"), **numbers)

    def problems(self) -> Iterator[Problem]:
        yield from self._trainer_problems()
        if self.nodes > 1:
            yield problem_of(one_machine())
        clock = self.args.get("clock")
        if (clock is not None) != self.is_simulated:
            host = str(self.args.get("host"))
            settings = CheckedSettings(RuleFacts(), DampingFacts(), host, False, clock is not None)
            yield from map(problem_of, find_contradictions(settings))
        if clock is not None:
            yield from problems_of(lambda: read_clock(clock, self.workers).check_without_servers())
        yield from self._limit_problems()
        yield from problems_of(self._check_peering)
        if self._is_never_equal():
            why = (
                f"{self.workers} workers are not a power of 2, so a few rounds never make all workers' parameters equal"
            )
            fix = "To average exactly, use a power of 2 for the number of workers, or topology: exponential."
            yield Problem("inexact", key_of("topology"), why, fix, "warning")

    def _check_peering(self) -> None:
        if (peering := self.peering()) is not None:
            peering.check(Async(), self.workers)

    def _is_never_equal(self) -> bool:
        graph = TOPOLOGIES.get(self.topology.word) if self._exchange_class and self.topology else None
        return graph is OnePeerExponential and bool(self.workers & (self.workers - 1))


class ModelParallelSettings(Strategy):
    """Workers that have a part of the model each."""

    def _degree(self, name: str) -> int:
        return positive(self.args.get(name)) or 1

    @property
    def stages(self) -> int:
        """Stages of a pipeline."""
        return self._degree("stages")

    @property
    def tensor(self) -> int:
        """Workers that share each layer."""
        return self._degree("tensor")

    @property
    def schedule(self) -> Schedule:
        """The order in which the stages compute."""
        return "gpipe" if self.args.get("schedule") == "gpipe" else "1f1b"

    @property
    def batches(self) -> int:
        return max(1, self.workers // (self.tensor * self.stages))

    @property
    def gradients(self) -> int:
        return self.batches

    @property
    def computed(self) -> int:
        return self.batches

    @property
    def words(self) -> str | None:
        if self.stages > 1:
            return f"stages {self.stages}, {self.args.get('schedule', '1f1b')}"
        return f"tensor {self.tensor}, shard {self.batches}"

    def problems(self) -> Iterator[Problem]:
        degrees = [self.args.get(name) for name in ("tensor", "shard", "stages", "microbatches")]
        if all(isinstance(degree, int | None) for degree in degrees):
            tensor, shard, stages, microbatches = degrees
            yield from problems_of(
                refuse_degrees, tensor or 1, shard, self.workers, stages or 1, microbatches, self.schedule
            )
        if self.trainer.get("sync_batchnorm"):
            why = "is not supported: workers of a split model do not share statistics within a forward pass"
            yield Problem("contradiction", "trainer.sync_batchnorm", why, "Use false, or use ddp.")
        if self.trainer.get("precision") not in (None, *PRECISIONS):
            why = f"{quoted_value(self.trainer['precision'])} cannot be combined with a split model"
            yield Problem("contradiction", "trainer.precision", why, "Use 32-true, bf16-mixed, bf16-true or 16-true.")


_KINDS: Final[Mapping[str, type[Strategy]]] = {
    "single": SingleProcess,
    "ddp": DDPSettings,
    "AsyncPS": AsyncPSSettings,
    "Peers": PeersSettings,
    "ModelParallel": ModelParallelSettings,
}


def read_strategy(trainer: Mapping[str, Any], description: Description, written: Mapping[str, Any]) -> Strategy:
    """The strategy of a Trainer's completed settings, which need not be free of errors. `written`: the
    strategy's arguments as the user wrote them."""
    completed = read_class(trainer.get("strategy"))
    info = completed.info("strategies", description)
    name = (info.config_value or info.name if info else completed.name or "auto").rpartition(".")[2]
    name = "single" if name == "auto" else name
    args = mapping(completed.args)
    args = {**{one.name: one.default for one in info.fields}, **args} if info else args
    return _KINDS.get(name, OtherStrategy)(name, info, written, args, trainer)


def _without_effect(name: str, why: str, fix: str) -> Problem:
    return Problem("no-effect", key_of(name), f"has no effect, because {why}", fix, "warning")


def _between_pushes(settings: Mapping[str, Any]) -> int:
    return next((count for name in ("every", "most", "n_push") if (count := positive(settings.get(name)))), 1)


def _codec_words(key: str, what: str, args: Mapping[str, Any], info: ClassInfo | None) -> str:
    """`pushes topk 0.01`; "" for tensors as they are."""
    codec = choice(key, args, info)
    return f"{what} {words}" if codec and (words := in_words(codec)) else ""
