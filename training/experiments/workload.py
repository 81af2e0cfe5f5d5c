"""How much a config asks for: strategy, workers, and the three sizes of a batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from scalebook.training.engine.rules.exchanges import EXCHANGES, PeerExchange
from scalebook.training.experiments.classes import (
    ENGINE_STRATEGIES,
    MODEL_PARALLEL,
    ChosenClass,
    choose_class,
    in_words,
    mapping,
    read_class,
)
from scalebook.training.experiments.completion import to_read
from scalebook.training.experiments.description import ClassInfo, Description, Group
from scalebook.training.experiments.lr_scaling import rate_scaling
from scalebook.training.experiments.num_nodes import nodes_of
from scalebook.training.tracking import names

STRATEGY_NAMES: Final = {
    "single": "one process",
    "ddp": "DDP",
    "AsyncPS": "parameter server",
    "Peers": "peers",
    "ModelParallel": "model parallel",
}
"""Names of strategies for people; a config names a strategy by its class."""
SYNCHRONOUS: Final = ("single", "ddp", MODEL_PARALLEL)
VIRTUAL: Final = "virtual"
"""The host with which one process simulates all workers."""


def strategy_words(name: str, rule: str | None, workers: int | str | None = None, simulated: bool = False) -> str:
    """`one process`, `DDP × 2`, `parameter server × 64 virtual, bounded, bound 3`; the number of workers where it is
    not 1."""
    many = f" × {workers}" if str(workers or 1) != "1" else ""
    many += " virtual" if simulated else ""
    return ", ".join(part for part in (f"{STRATEGY_NAMES.get(name, name)}{many}", rule or "") if part)


@dataclass(frozen=True)
class Workload:
    """What the scheduler, the form and the records must know of a config. Batch sizes are samples.

    The batch sizes are None where the data set has no `batch_size`.
    """

    strategy: str
    """`single`, `ddp`, `AsyncPS`, `Peers`, `ModelParallel`, or the name of another class."""
    rule: str | None
    """Rule and modifiers in words: `bounded, bound 3`; `async, inverse damping, warm-up 100`. Of DDP how gradients
    travel, where not as they are: `gradients topk 0.01`. Of peers the exchange and the topology: `D-PSGD on ring`.
    Of a split model its degrees: `tensor 2, shard 2`; `stages 2, 1f1b`."""
    workers: int
    batches: int
    """Different batches that they compute at a time: one each, but one for all of a tensor group or pipeline."""
    nodes: int
    """Nodes, each with as many of the workers."""
    least: int | None
    """Workers with which it begins, if nodes may join and leave while it trains; None if they may not."""
    processes: int
    """Processes that train on each node: one for each of its workers, but a single one that simulates all."""
    devices: int
    """GPUs that it takes on each node, if it computes on them; no more than it has processes there."""
    gpu_share: float
    """Share of its GPU's memory."""
    threads: int
    batch_per_worker: int | None
    accumulate: int
    """Batches of one worker that make one gradient."""
    batch_global: int | None
    """Samples that all workers together compute at a time: per worker x batches."""
    batch_effective: int | None
    """Samples whose gradients make one update: those of `gradients` workers."""
    batch_averaged: int | None
    """Samples whose mean gradient the learning rate multiplies: `batch_effective`, but that gradients which a worker
    sums into one push (`downpour`) are as many steps in one, and one worker's where it makes steps of its own."""
    gradients: int
    """Gradients that are averaged into one update: all workers' under DDP, one where a worker pushes by itself."""
    computed: int
    """Gradients that are computed for one update, those in vain included."""
    learning_rate: float | None
    """As asked for."""
    learning_rate_scaled: float | None
    """What `lr_scaling` makes of it; None where the config has none, or one of the two is not known."""
    accelerator: str
    is_simulated: bool
    """Whether one process simulates all workers, and seconds are those of a declared clock."""

    @property
    def least_nodes(self) -> int:
        """Nodes with which it begins, if others may join later; else 0."""
        return 0 if self.least is None else -(-min(self.least, self.workers) // self.processes)

    def tags(self) -> dict[str, Any]:
        """The tags of a run before it starts; None where something does not apply."""
        return {
            names.TAG_STRATEGY: self.strategy,
            names.TAG_RULE: self.rule,
            names.TAG_WORKERS: self.workers,
            names.TAG_CLOCK: names.VIRTUAL if self.is_simulated else None,
            names.TAG_BATCH_PER_WORKER: self.batch_per_worker,
            names.TAG_BATCH_GLOBAL: self.batch_global,
            names.TAG_LR_ASKED: self.learning_rate,
            names.TAG_LR_SCALED: self.learning_rate_scaled,
        }

    def params(self) -> dict[str, Any]:
        """The same as parameters, which MLflow's charts and filters take: every run has all of them. `lr` is the rate
        that is applied; what the config does not say, of a data set without a batch size, is `unknown`."""
        applied = self.learning_rate if self.learning_rate_scaled is None else self.learning_rate_scaled
        by_name = {
            "strategy": self.strategy,
            "rule": self.rule or names.NO_RULE,
            "workers": self.workers,
            "batch_per_worker": self.batch_per_worker,
            "batch_global": self.batch_global,
            "lr": applied,
            "clock": names.VIRTUAL if self.is_simulated else names.REAL,
        }
        return {name: names.UNKNOWN if value is None else value for name, value in by_name.items()}


def workload(config: Mapping[str, Any], description: Description) -> Workload:
    """The workload of a config, complete or not, which need not be free of errors (a form asks while one types)."""
    done = to_read(config, description)
    trainer = mapping(done["trainer"])
    strategy = read_class(trainer.get("strategy"))
    info = strategy.info("strategies", description)
    name = _strategy_name(info.config_value or info.name if info else strategy.name or "auto")
    args = mapping(strategy.args)
    devices = _count(trainer.get("devices")) or 1
    nodes = 1 if name == "single" else nodes_of(trainer)
    workers = 1 if name == "single" else (_count(args.get("workers")) or devices) * nodes
    simulated = name in ENGINE_STRATEGIES and simulates(args)
    rule = choice("rule", args, info)
    tensor, stages = (
        (_count(args.get(degree)) or 1) if name == MODEL_PARALLEL else 1 for degree in ("tensor", "stages")
    )
    batches = max(1, workers // (tensor * stages))
    gradients, computed = (batches, batches) if name in SYNCHRONOUS else _gradients(rule, workers)
    exchange = _exchange(args, info)
    if exchange is not None and exchange.waits:
        gradients = computed = workers
    batch = _count(_argument(done, "data", "data", "batch_size", description))
    accumulate = _count(trainer.get("accumulate_grad_batches")) or 1
    local = choice("local", args, info)
    processes = 1 if simulated else max(1, workers // nodes)
    steps = exchange is not None or (local is not None and local.info.local is not None and local.info.local.steps)
    effective = batch and batch * accumulate * gradients * (
        _between_pushes(local.settings() if local else args) if local or exchange else 1
    )
    averaged = batch and batch * accumulate * (1 if steps else gradients)
    rate = _learning_rate(done, description)
    return Workload(
        strategy=name,
        rule=_rule_words(rule, args, info)
        if rule
        else _other_words(name, tensor, stages, batches, exchange, args, info),
        workers=workers,
        batches=batches,
        nodes=nodes,
        least=_count(mapping(args.get("workers")).get("min")),
        processes=processes,
        devices=min(devices, processes) if name in ENGINE_STRATEGIES else processes,
        gpu_share=_share(done.get("gpu_share")),
        threads=_count(done.get("threads")) or 1,
        batch_per_worker=batch,
        accumulate=accumulate,
        batch_global=batch and batch * batches,
        batch_effective=effective,
        batch_averaged=averaged,
        gradients=gradients,
        computed=computed,
        learning_rate=rate,
        learning_rate_scaled=_scaled(done, rate, averaged),
        accelerator=str(trainer.get("accelerator") or "auto"),
        is_simulated=simulated,
    )


def simulates(args: Mapping[str, Any]) -> bool:
    """Whether one process has all workers, by these arguments of a strategy."""
    return bool(args.get("host") == VIRTUAL)


def choice(name: str, args: Mapping[str, Any], info: ClassInfo | None) -> ChosenClass | None:
    """The class that a strategy's argument `name` names, by default or by `args`; None where it names none."""
    field = (
        next((field for field in info.fields if field.name == name and field.type == "class"), None) if info else None
    )
    return choose_class(args.get(name, field.default), field) if field else None


def _exchange(args: Mapping[str, Any], info: ClassInfo | None) -> type[PeerExchange] | None:
    """What peers do; None for workers that are none."""
    chosen = choice("exchange", args, info)
    return None if chosen is None else EXCHANGES.get(chosen.word)


def _between_pushes(settings: Mapping[str, Any]) -> int:
    """Gradients of a worker for each of its pushes, as many as it may be; of a peer for each of its exchanges."""
    return next((count for name in ("every", "most", "n_push") if (count := _count(settings.get(name)))), 1)


def _gradients(rule: ChosenClass | None, workers: int) -> tuple[int, int]:
    """Gradients that are averaged into one update, and those that are computed for it."""
    if rule is None or rule.info.rule is None:
        return 1, 1
    facts, settings = rule.info.rule, rule.counts()
    return facts.averaged(workers, settings), facts.computed(workers, settings)


def _rule_words(rule: ChosenClass, args: Mapping[str, Any], info: ClassInfo | None) -> str:
    damping, warmup = choice("damping", args, info), _count(args.get("warmup_updates"))
    local = choice("local", args, info)
    parts = [in_words(rule), in_words(local) if local else "", in_words(damping) if damping else ""]
    parts.append(_codec_words("push_codec", "pushes", args, info))
    parts += [_codec_words("pull_codec", "pulls", args, info), f"warm-up {warmup}" if warmup else ""]
    return ", ".join(part for part in parts if part)


def _other_words(
    name: str,
    tensor: int,
    stages: int,
    batches: int,
    exchange: type[PeerExchange] | None,
    args: Mapping[str, Any],
    info: ClassInfo | None,
) -> str | None:
    if name == MODEL_PARALLEL and stages > 1:
        return f"stages {stages}, {args.get('schedule', '1f1b')}"
    if name == MODEL_PARALLEL:
        return f"tensor {tensor}, shard {batches}"
    return _peer_words(exchange, args, info)


def _peer_words(exchange: type[PeerExchange] | None, args: Mapping[str, Any], info: ClassInfo | None) -> str | None:
    """`D-PSGD on ring, codec int8`; of DDP its codec; None for what has nothing to tell."""
    if exchange is None:
        return _codec_words("codec", "gradients", args, info) or None
    parts = [exchange.words]
    if (topology := choice("topology", args, info)) is not None:
        parts[0] += f" on {in_words(topology)}"
    if (chosen := choice("exchange", args, info)) is not None:
        parts += [str(value).replace("_", " ") for value in chosen.non_defaults().values()]
    parts.append(_codec_words("codec", "codec", args, info))
    for name in ("mixing", "every", "global_every"):
        if (value := args.get(name)) not in (None, 0, 1):
            parts.append(f"{name.replace('_', ' ')} {value}")
    return ", ".join(part for part in parts if part)


def _codec_words(key: str, what: str, args: Mapping[str, Any], info: ClassInfo | None) -> str:
    """`pushes topk 0.01`; "" for tensors as they are."""
    codec = choice(key, args, info)
    return f"{what} {words}" if codec and (words := in_words(codec)) else ""


def _strategy_name(name: str) -> str:
    return "single" if name == "auto" else name.rsplit(".", 1)[-1]


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _share(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and 0 < value <= 1 and not isinstance(value, bool) else 1.0


def _argument(config: Mapping[str, Any], key: str, group: Group, name: str, description: Description) -> Any:
    reference = read_class(config.get(key))
    if name in mapping(reference.args):
        return mapping(reference.args)[name]
    info = reference.info(group, description)
    return next((field.default for field in info.fields if field.name == name), None) if info else None


def _scaled(config: Mapping[str, Any], rate: float | None, samples: int | None) -> float | None:
    scaling = rate_scaling(config)
    return None if scaling is None or rate is None or samples is None else rate * scaling.factor(samples)


def _learning_rate(config: Mapping[str, Any], description: Description) -> float | None:
    candidates = [
        _argument(config, "optimizer", "optimizers", "lr", description),
        _argument(config, "model", "models", "learning_rate", description),
        _argument(config, "model", "models", "lr", description),
    ]
    return next(
        (
            float(candidate)
            for candidate in candidates
            if isinstance(candidate, int | float) and not isinstance(candidate, bool)
        ),
        None,
    )


MOST_A_CORE: Final = 8
"""Threads that share a core before that is taken for a slip: some experiments crowd a machine on purpose."""


def crowd_words(load: Workload, cores: int) -> str:
    """`1,000 workers on 2 cores: ...`; "" where they have room enough, or crowd it no more than is often wanted."""
    threads = load.processes * load.threads
    if threads <= MOST_A_CORE * cores:
        return ""
    each = f" with {load.threads} threads each" if load.threads > 1 else ""
    return (
        f"{load.workers:,} workers{each} on {cores} {'core' if cores == 1 else 'cores'}: about {threads // cores:,} "
        "would take turns on each, and every worker takes memory of its own."
    )
