"""Settings of a parameter server that contradict each other: asked by the engine before it starts, and by forms."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.rules.facts import DampingFacts, LocalFacts, RuleFacts, count, terms


class CheckedSettings(NamedTuple):
    """Those settings that others can contradict."""

    rule: RuleFacts
    damping: DampingFacts
    host: str
    drift: bool = False
    has_clock: bool = False
    local: LocalFacts = LocalFacts("none")
    stops: bool = False
    """Whether the rule stops who is late (`cancel`)."""


def unfit_for_nodes(host: str) -> ArgumentError | None:
    """Why workers on several machines cannot have this host; None where they can."""
    if host != "virtual":
        return None
    why = "is virtual, so all workers are simulated by one process on one machine"
    return ArgumentError("contradiction", "host", why, "Set host to inline or process, or use only one machine.")


class _Row(NamedTuple):
    """`message` and `fix` may name what is asked: `{rule.name}`."""

    argument: str
    holds: Callable[[CheckedSettings], bool]
    message: str
    fix: str


TABLE: Final = (
    _Row(
        "damping",
        lambda a: a.rule.gathers and a.damping.compensates,
        "corrects single gradients, but {rule.name} averages gradients",
        "Set damping: none, or set rule: async.",
    ),
    _Row(
        "host",
        lambda a: a.host == "overlap" and a.rule.gathers,
        "is overlap, which has no effect with {rule.name}, because its workers wait for each other anyway",
        "Set host: process.",
    ),
    _Row(
        "host",
        lambda a: a.host == "overlap" and a.rule.refuses,
        "is overlap, which cannot be combined with {rule.name}, because this rule may refuse a gradient",
        "Set host: process, or use another rule.",
    ),
    _Row(
        "host",
        lambda a: a.host == "overlap" and (a.damping.compensates or a.damping.drops),
        "is overlap, which cannot be combined with {damping.name}",
        "Set host: process, or remove {damping.name}.",
    ),
    _Row(
        "clock",
        lambda a: a.host == "virtual" and not a.has_clock,
        "is missing, but virtual workers need it to know how long each step takes",
        "Set how long a gradient takes, such as clock: {{gradient_s: 0.05}}.",
    ),
    _Row(
        "clock",
        lambda a: a.host != "virtual" and a.has_clock,
        "is for virtual workers only, but with host {host} workers run in real time",
        "Set host: virtual, or remove clock.",
    ),
    _Row(
        "host",
        lambda a: a.host == "overlap" and a.local.steps,
        "is overlap, which cannot be combined with {local.name}, because its workers continue from the newest "
        "parameters",
        "Set host: process, or set local: none.",
    ),
    _Row(
        "local",
        lambda a: a.local.sums and (a.rule.gathers or a.rule.waits),
        "is {local.name}, whose pushes must be applied on arrival, but {rule.name} averages pushes or waits for them",
        "Use local_sgd, or set rule: async.",
    ),
    _Row(
        "damping",
        lambda a: a.local.steps and a.damping.compensates,
        "corrects gradients, but with local: {local.name} workers push steps instead of gradients",
        "Set damping: none, or set local: none.",
    ),
    _Row(
        "rule",
        lambda a: a.stops and a.host != "virtual",
        "is {rule.name} with cancel, but with host {host} a process cannot be stopped during a backward pass",
        "Set host: virtual, or set cancel: false, which lets late workers finish their gradient.",
    ),
    _Row(
        "local",
        lambda a: a.local.steps and a.stops,
        "is {local.name}, but the rule's cancel would discard the workers' local steps",
        "Set local: none, or set cancel: false.",
    ),
    _Row(
        "host",
        lambda a: a.host == "overlap" and a.drift,
        "is overlap, but then parameters may be overwritten before the drift of a gradient from them is measured",
        "Set host: process, or set record: nothing.",
    ),
)


def find_contradictions(settings: CheckedSettings) -> list[ArgumentError]:
    """All that `settings` contradict each other in, at most one for each argument."""
    by_argument: dict[str, ArgumentError] = {}
    values = settings._asdict()
    for row in TABLE:
        if row.argument not in by_argument and row.holds(settings):
            words = (row.message.format(**values), row.fix.format(**values))
            by_argument[row.argument] = ArgumentError("contradiction", row.argument, *words)
    return list(by_argument.values())


def nobody_left(rule: RuleFacts, settings: Mapping[str, Any], workers: int) -> ArgumentError | None:
    """Where an argument of the rule takes so many gradients off an update that none is left."""
    left = count(rule.gradients_per_update, workers, settings)
    taken = [word for sign, word in terms(rule.gradients_per_update) if sign < 0 and settings.get(word, 0) > 0]
    if left > 0 or not taken:
        return None
    value = settings[taken[0]]
    return ArgumentError(
        "out-of-bounds",
        f"rule.{taken[0]}",
        f"is {value}, which would leave none of the {workers} workers to wait for",
        f"Use at most {max(0, value + left - 1)}, or use more workers.",
    )
