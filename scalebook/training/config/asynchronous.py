"""What a config may not ask of a parameter server, and which of its settings have no effect together."""

from collections.abc import Callable, Mapping
from typing import Any

from scalebook.training.config.classes import mapping, named
from scalebook.training.config.description import Description
from scalebook.training.config.nodes import nodes_of
from scalebook.training.config.workload import choice, workload
from scalebook.training.errors import Problem
from scalebook.training.ps.policy.clock_reading import read_clock
from scalebook.training.ps.policy.contradictions import ARGUMENTS, FAR, CheckedSettings, contradictions, nobody_left
from scalebook.training.ps.policy.facts import DampingFacts, LocalFacts, RuleFacts
from scalebook.training.ps.policy.limits import read_limits
from scalebook.training.ps.policy.worker_range import misfit, read_range


def problems(config: Mapping[str, Any], description: Description) -> list[Problem]:
    """Errors and warnings of a config whose strategy is AsyncPS; none for others."""
    strategy = named(mapping(config.get("trainer")).get("strategy"))
    info = strategy.info("strategies", description)
    if info is None or info.name != "AsyncPS":
        return []
    args = {**{field.name: field.default for field in info.fields}, **mapping(strategy.args)}
    load = workload(config, description)
    workers = load.workers
    rule, damping = choice("rule", args, info), choice("damping", args, info)
    findings = _refused(mapping(config.get("trainer")), workers) + _refused_far(config, args)
    if rule and damping:
        facts, effect = rule.info.rule or RuleFacts(rule.word), damping.info.damping or DampingFacts(damping.word)
        own = choice("local", args, info)
        local = (own.info.local if own else None) or LocalFacts("none")
        findings += _contradictions(args, facts, effect, local, rule.counts(), workers)
        findings += _workers(args.get("workers"), workers // load.nodes, load.nodes, facts, rule.counts())
        if facts.synchronous and (effect.drops or effect.scales):
            why = f"with the rule {rule.word} every gradient is fresh"
            findings.append(_idle("damping", why, "Write none, or another rule."))
    if args.get("clock") is not None:
        findings += _said_by(read_clock, args["clock"], workers)
    if args.get("limits") is not None:
        findings += _said_by(read_limits, args["limits"])
    if workers == 1:
        alone = "there is only one worker"
        findings += [
            _idle(name, alone, "Use more workers.")
            for name, value in (
                ("warmup_updates", args.get("warmup_updates")),
                ("limits.restarts", mapping(args.get("limits")).get("restarts")),
            )
            if value
        ]
    return findings


def _contradictions(
    args: Mapping[str, Any],
    rule: RuleFacts,
    damping: DampingFacts,
    local: LocalFacts,
    counts: Mapping[str, int],
    workers: int,
) -> list[Problem]:
    """What the engine refuses when it starts, said before."""
    settings = CheckedSettings(
        rule, damping, str(args.get("host")), args.get("record") == "drift", args.get("clock") is not None, local,
        bool(counts.get("cancel")) and counts.get("backup_workers", 0) > 0,
    )  # fmt: skip
    first = nobody_left(rule, counts, workers)
    return [_error(*contradiction) for contradiction in ([first] if first else []) + contradictions(settings)]


def _workers(written: object, on_each: int, nodes: int, rule: RuleFacts, counts: Mapping[str, int]) -> list[Problem]:
    """Of `workers`, a number or `{min, max}`."""
    if written is None or (isinstance(written, int) and not isinstance(written, bool) and written > 0):
        return []
    try:
        found = misfit(read_range(written), on_each, nodes, rule, counts)
    except ValueError as error:
        return [Problem.said_by(error)]
    return [_error(*found)] if found else []


def _said_by(read: Callable[..., object], *written: object) -> list[Problem]:
    """What is wrong with what an argument says, as its reader refuses it."""
    try:
        read(*written)
    except ValueError as error:
        return [Problem.said_by(error)]
    return []


def _error(name: str, why: str, remedy: str) -> Problem:
    return Problem(f"{ARGUMENTS}.{name}", why, remedy)


def _idle(name: str, why: str, remedy: str) -> Problem:
    return Problem(f"{ARGUMENTS}.{name}", f"has no effect: {why}", remedy, "warning")


def _refused_far(config: Mapping[str, Any], args: Mapping[str, Any]) -> list[Problem]:
    """What workers on several machines cannot do, as the engine says it when it starts."""
    if nodes_of(mapping(config.get("trainer"))) == 1:
        return []
    return [_error(*refusal[:3]) for refusal in FAR if args.get(refusal.key) == refusal.value]


def _refused(trainer: Mapping[str, Any], workers: int) -> list[Problem]:
    """What a parameter server does not do of what the Trainer may be asked for."""
    refusals: list[Problem] = []
    if trainer.get("sync_batchnorm") and workers > 1:
        refusals.append(
            Problem(
                "trainer.sync_batchnorm",
                "needs a common batch of all workers",
                "Write false, and see buffers of AsyncPS; or use ddp.",
            )
        )
    return refusals
