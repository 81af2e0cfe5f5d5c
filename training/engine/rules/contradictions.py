"""Settings of a parameter server that contradict each other. The engine checks them before it starts, and forms as
well."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from scalebook.training.engine.rules.facts import DampingFacts, LocalFacts, RuleFacts, count, terms

ARGUMENTS: Final = "trainer.strategy.init_args"


class CheckedSettings(NamedTuple):
    """The settings that can contradict each other."""

    rule: RuleFacts
    damping: DampingFacts
    host: str
    drift: bool = False
    has_clock: bool = False
    local: LocalFacts = LocalFacts("none")
    stops: bool = False
    """Whether the rule stops late workers (`cancel`)."""


class Contradiction(NamedTuple):
    """`key` is an argument of AsyncPS, or of the class that it names. `message` follows that key in the error."""

    key: str
    message: str
    remedy: str

    def error(self) -> ValueError:
        """A ValueError whose message begins with the whole dotted key."""
        return ValueError(f"{ARGUMENTS}.{self.key}: {self.message}. {self.remedy}")


class Refusal(NamedTuple):
    """A value that does not work with another setting; see `Contradiction`."""

    key: str
    message: str
    remedy: str
    value: object


FAR: Final = (
    Refusal(
        "host",
        "one process simulates all workers of host virtual, on one node",
        "Write inline or process, or num_nodes: 1.",
        "virtual",
    ),
)
"""Settings that do not work with workers on several nodes."""


class _Row(NamedTuple):
    """`message` and `remedy` may refer to the settings: `{rule.name}`."""

    key: str
    holds: Callable[[CheckedSettings], bool]
    message: str
    remedy: str


TABLE: Final = (
    _Row(
        "damping",
        lambda a: a.rule.gathers and a.damping.compensates,
        "corrects single gradients, which {rule.name} averages",
        "Write none, or rule: async.",
    ),
    _Row(
        "host",
        lambda a: a.host == "overlap" and a.rule.gathers,
        "is overlap, which has no effect with {rule.name}: it waits for others anyway",
        "Write process.",
    ),
    _Row(
        "host",
        lambda a: a.host == "overlap" and a.rule.refuses,
        "is overlap, which cannot be combined with {rule.name}: it may refuse a gradient",
        "Write process, or use another rule.",
    ),
    _Row(
        "host",
        lambda a: a.host == "overlap" and (a.damping.compensates or a.damping.drops),
        "is overlap, which cannot be combined with {damping.name}",
        "Write process, or remove {damping.name}.",
    ),
    _Row(
        "clock",
        lambda a: a.host == "virtual" and not a.has_clock,
        "is missing, and it says how long virtual workers take",
        "Write how long a gradient takes, as clock: {{gradient_s: 0.05}}.",
    ),
    _Row(
        "clock",
        lambda a: a.host != "virtual" and a.has_clock,
        "is for virtual workers; those of host {host} run in real time",
        "Write host: virtual, or remove clock.",
    ),
    _Row(
        "host",
        lambda a: a.host == "overlap" and a.local.steps,
        "is overlap, which cannot be combined with {local.name}: its workers go on from the newest parameters",
        "Write process, or local: none.",
    ),
    _Row(
        "local",
        lambda a: a.local.sums and (a.rule.gathers or a.rule.waits),
        "is {local.name}, whose pushes are applied on arrival, but {rule.name} averages pushes or waits for them",
        "Write local_sgd, or rule: async.",
    ),
    _Row(
        "damping",
        lambda a: a.local.steps and a.damping.compensates,
        "corrects gradients, but with local: {local.name} workers push no gradients",
        "Write none, or local: none.",
    ),
    _Row(
        "rule",
        lambda a: a.stops and a.host != "virtual",
        "is {rule.name} with cancel, and a process of host {host} cannot be stopped within a backward pass",
        "Write host: virtual, or cancel: false, which lets late workers finish their gradient.",
    ),
    _Row(
        "local",
        lambda a: a.local.steps and a.stops,
        "is {local.name}, whose workers would lose their local steps by the rule's cancel",
        "Write none, or cancel: false.",
    ),
    _Row(
        "host",
        lambda a: a.host == "overlap" and a.drift,
        "is overlap, where the parameters that a gradient came from may be gone when it is applied: drift is unknown",
        "Write process, or record: nothing.",
    ),
)


def contradictions(settings: CheckedSettings) -> list[Contradiction]:
    """All contradictions in `settings`, at most one for each key."""
    by_key: dict[str, Contradiction] = {}
    for row in TABLE:
        if row.key not in by_key and row.holds(settings):
            values = settings._asdict()
            by_key[row.key] = Contradiction(row.key, row.message.format(**values), row.remedy.format(**values))
    return list(by_key.values())


def nobody_left(rule: RuleFacts, settings: Mapping[str, Any], workers: int) -> Contradiction | None:
    """The contradiction of a rule whose argument leaves no gradient for an update; None if one is left."""
    left = count(rule.gradients_per_update, workers, settings)
    taken = [word for sign, word in terms(rule.gradients_per_update) if sign < 0 and settings.get(word, 0) > 0]
    if left > 0 or not taken:
        return None
    value = settings[taken[0]]
    return Contradiction(
        f"rule.init_args.{taken[0]}",
        f"is {value}, which leaves no worker to wait for among {workers}",
        f"Write at most {max(0, value + left - 1)}, or use more workers.",
    )
