"""From a question to its answer: every combination simulated, its knee, the causes, and what would move it."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Final

from scalebook.training.engine.rules import (
    Async,
    ClockSettings,
    Communication,
    Distribution,
    Downpour,
    HostName,
    Link,
    LocalSGD,
    NoLocalSteps,
    Rule,
    Settings,
    Sync,
)
from scalebook.training.planner.all_reduce import AllReduce, WithoutServer
from scalebook.training.planner.answers import Answer, Cause, Change, Curve, Knee, Point, Range, Reliability, Resource
from scalebook.training.planner.closed_forms import most_gradients
from scalebook.training.planner.play import play
from scalebook.training.planner.question import MOST_SHARDS, Question, label
from scalebook.training.planner.reliability import reliability_of
from scalebook.training.pricing import (
    Network,
    Profile,
    SharedNode,
    links,
    mean_s,
    profile_mapping,
    scaled_s,
    workers_words,
)

HALF: Final = 0.5
"""Share of the first worker's gain; beyond the knee an added worker brings less."""
TELLING: Final = 1.05
"""The speed-up from which a resource or a change is worth a word."""
BACKUPS: Final = 20
"""One backup worker for so many workers: 5 %, of the order that Chen et al. 2016 found best for 100 workers."""
SAME: Final = 0.95
"""Factor of the largest shard's share from which fewer shards are as good."""
LOCAL_STEPS: Final = 16
"""A worker's steps between two pushes, among the changes that would move a bottleneck."""
Tell = Callable[[int, int, str], None]
"""Called with how many simulations are done, of about how many, and what is simulated next."""


@dataclass(frozen=True)
class Setting:
    """What is simulated, except for the number of workers. `written`: the config's settings beside rule, shards, local
    steps and overlap; `coded`: whether the profile's bytes are already fewer than the parameters'."""

    profile: Profile
    rule: Rule | WithoutServer
    shards: int
    network: str
    seed: int
    local: Communication = field(default_factory=NoLocalSteps)
    overlap: bool = False
    written: Settings = field(default_factory=Settings)
    coded: bool = False

    @classmethod
    def of(
        cls, profile: Profile, question: Question, rule: Rule | WithoutServer, shards: int, network: str
    ) -> "Setting":
        """One of a question's combinations, all else as in the config."""
        written = question.written
        if isinstance(rule, WithoutServer):
            shards = 1
            if question.coded and rule != question.config_rule:  # the codec is of the config's own strategy
                profile = replace(profile, push_bytes=profile.weights or profile.pull_bytes)
        within = profile.node.link if profile.node else Link()
        if (
            network != links.OWN and profile.cores is not None
        ):  # measured here: this machine's part is what joins a node
            profile = replace(profile, node=SharedNode(question.node or 1, within), overlap=True)
        local, overlap = written.local, written.overlap
        return cls(profile, rule, shards, network, question.seed, local, overlap, written, question.coded)

    @property
    def settings(self) -> Settings:
        """The settings of the engine."""
        assert isinstance(self.rule, Rule), "a parameter server's"
        host: HostName = "overlap" if self.overlap else "process" if self.written.overlap else self.written.host
        return replace(self.written, rule=self.rule, shards=self.shards, local=self.local, host=host)

    @property
    def joined(self) -> Network:
        return self.profile.network if self.network == links.OWN else links.NETWORKS[self.network]

    @property
    def reliability(self) -> Reliability:
        return reliability_of(self.profile, self.rule, self.network == links.OWN, self.shards)

    @property
    def measured(self) -> int:
        """`Curve.measured`: over another network, one worker by itself."""
        if self.profile.cores is None or self.profile.source == Profile.source:
            return 0
        return max(self.profile.slowdown, default=1) if self.network == links.OWN else 1

    @property
    def cores(self) -> int | None:
        return self.profile.cores if self.network == links.OWN else None

    def clock(self, workers: int) -> ClockSettings:
        """The declared times. On this machine workers slow each other down; over a network each has its own."""
        profile = self.profile
        if self.network == links.OWN:
            profile = profile.shared_by(workers)
            if profile.cores is not None:  # measured here: what is handed over in memory is no message
                profile = replace(profile, software=None)
        clock, written = profile.clock(workers, self.shards, self.joined), self.written
        apart = written.has_servers or (written.clock is not None and written.clock.server_process)
        return replace(clock, server_process=apart)

    @property
    def gpus(self) -> int:
        """The most workers, where each needs a GPU of this machine to itself, as NCCL does; 0: no such limit."""
        return self.profile.gpus if isinstance(self.rule, AllReduce) and self.network == links.OWN else 0

    def allows(self, workers: int) -> bool:
        """Whether the rule makes sense for so many workers, and with the other settings."""
        if self.gpus and workers > self.gpus:
            return False
        if isinstance(self.rule, WithoutServer):
            return self.rule.allows(workers)
        try:
            self.settings.check(workers)
        except ValueError:
            return False
        return True

    def memory(self, workers: int) -> float:
        """Bytes of a worker's weights, gradients and optimizer state; under a server a worker has state only if it
        makes local steps."""
        profile = self.profile
        weights = profile.weights or profile.pull_bytes
        if isinstance(self.rule, WithoutServer):
            return self.rule.memory(weights, profile.state, workers)
        return 2 * weights + (profile.state if self.local.steps else 0.0)

    def most(self, clock: ClockSettings) -> float:
        """Samples a second that servers and their link allow (`closed_forms.most_gradients`); no limit without a
        server."""
        if isinstance(self.rule, WithoutServer):
            return math.inf
        profile = self.profile
        travels = profile.push_bytes, profile.pull_bytes
        return profile.batch_size * most_gradients(self.local, clock, *travels)

    def play(self, workers: int, without: tuple[ClockSettings, int | None] | None = None) -> Point:
        """The point in steady state. `without`: another clock and other cores instead of its own."""
        if isinstance(self.rule, WithoutServer):
            return self.rule.play(self.profile, workers, self.joined, self.network == links.OWN, self.seed)
        clock, cores = without or (self.clock(workers), self.cores)
        return play(
            self.profile,
            workers,
            self.rule,
            self.shards,
            clock,
            self.seed,
            cores,
            local=self.local,
            overlap=self.overlap,
            damping=self.written.damping,
        )


def answer(profile: Profile, question: Question, tell: Tell = lambda done, whole, words: None) -> Answer:
    """Simulate all that is asked. ConfigError for what cannot be asked."""
    question.check()
    began = time.monotonic()
    settings = [
        Setting.of(profile, question, rule, shards, network)
        for network in question.networks
        for shards in question.shards
        for rule in question.rules
        if not (isinstance(rule, WithoutServer) and shards != question.shards[0])
    ]
    progress = _Telling(tell, len(settings) * (len(question.workers) + AFTERWARDS))
    curves = [_curve(setting, question, progress) for setting in settings]
    return Answer(
        profile_mapping(profile),
        curves,
        question.seed,
        time.monotonic() - began,
        list(question.elastic),
        question.config_workers,
        question.compared_at,
        profile.batch_size / (profile.gradient_mean_s + profile.update_s),
    )


AFTERWARDS: Final = 12
"""About how many simulations follow those that were asked for: without a resource, or with a change."""


class _Telling:
    def __init__(self, tell: Tell, whole: int) -> None:
        self._tell, self._whole, self._done = tell, whole, 0

    def __call__(self, words: str) -> None:
        self._tell(min(self._done, self._whole), self._whole, words)
        self._done += 1


def _curve(setting: Setting, question: Question, tell: _Telling) -> Curve:
    """What limits it is of the workers that strategies are compared at, what would help only of a config's own, or of
    all where there is no config."""
    name = label(setting.rule)
    tell(f"{name}, {workers_words(1)}")
    plain = setting if isinstance(setting.rule, WithoutServer) else replace(setting, rule=Async(), overlap=False)
    single_per_s = replace(plain, local=NoLocalSteps()).play(1).samples_per_s
    points = []
    for count in question.workers:
        if setting.allows(count):
            tell(f"{name}, {workers_words(count)}")
            points.append(replace(setting.play(count), memory=setting.memory(count)))
    own = question.config_rule is not None and setting.rule == question.config_rule
    beside = question.beside if own or not isinstance(setting.rule, WithoutServer) else ""
    gpus = setting.gpus if max(question.workers) > setting.gpus else 0
    curve = Curve(
        name, setting.shards, setting.network, single_per_s, points, setting.reliability, beside=beside, own=own,
        measured=setting.measured, gpus=gpus,
    )  # fmt: skip
    if not points:
        return curve
    knee = find_knee(single_per_s, points, setting.reliability.updates_per_s)
    by_workers = {point.workers: point.samples_per_s for point in points}
    compared_at = question.compared_at if question.compared_at in by_workers else points[-1].workers
    causes = find_causes(setting, compared_at, by_workers[compared_at], compared_at * single_per_s, tell)
    wanted = own or question.config_rule is None
    changes = find_changes(setting, compared_at, by_workers[compared_at], tell) if wanted else []
    return replace(curve, knee=knee, at=compared_at, causes=causes, changes=changes)


def find_knee(one_per_s: float, points: Sequence[Point], within: Range) -> Knee | None:
    """The knee; None if each added worker brings at least half as much as the first, up to the last of `points`."""
    workers, reached = 0, 0.0
    for point in points:
        slope = reached / workers if workers else one_per_s
        gained = point.samples_per_s - reached
        if gained < HALF * one_per_s * (point.workers - workers):
            knee = workers + max(0.0, gained) / slope
            return Knee(knee, point.samples_per_s, point.workers, *within.likely_ratio(knee))
        workers, reached = point.workers, point.samples_per_s
    return None


# --- what causes it --------------------------------------------------------------------------------------------------


def find_causes(
    setting: Setting, workers: int, reached: float, ideal: float, tell: Callable[[str], None] = lambda words: None
) -> list[Cause]:
    """The resources without whose limit samples a second rise, most first; pairs of them if no single one does."""
    limits, within = _limits(setting), setting.reliability.updates_per_s
    for together in (1, 2):
        causes = []
        for resources in combinations(limits, together):
            tell(f"{label(setting.rule)}, {workers_words(workers)} without a limit on {' and '.join(resources)}")
            factor = _without(setting, workers, resources, TELLING * reached) / reached
            if factor >= TELLING:
                causes.append(Cause(list(resources), factor, *within.likely_ratio(factor)))
        if causes or reached * TELLING >= ideal:
            break
    return sorted(causes, key=lambda cause: -cause.factor)


def _limits(setting: Setting) -> list[Resource]:
    """The resources that the profile limits at all."""
    clock = setting.clock(1)
    if isinstance(setting.rule, WithoutServer):
        node = setting.profile.node
        limited: list[Resource] = ["worker link"] if clock.link != Link() or (node and node.link != Link()) else []
        limited += ["stragglers"] if isinstance(clock.gradient_s, Distribution) or setting.profile.stragglers else []
        limited += ["cores"] if setting.network == links.OWN and (setting.cores or setting.profile.slowdown) else []
        return limited
    by_resource: dict[Resource, bool] = {
        "server": mean_s(setting.profile.server_s) != 0,
        "server cores": setting.profile.server_cores is not None,
        "software": clock != replace(setting, profile=replace(setting.profile, software=None)).clock(1),
        "server link": clock.server_link != Link(),
        "worker link": clock.link != Link(),
        "stragglers": not isinstance(clock.gradient_s, float | int) or bool(setting.profile.stragglers),
        "cores": setting.network == links.OWN and (setting.cores is not None or bool(setting.profile.slowdown)),
    }
    return [resource for resource, is_there in by_resource.items() if is_there]


def _without(setting: Setting, workers: int, resources: Sequence[Resource], least: float) -> float:
    """Samples a second with these resources without limit; 0 where the others allow fewer than `least`."""
    if isinstance(setting.rule, WithoutServer):
        return _reduced_without(setting, setting.rule, workers, resources).samples_per_s
    cores = setting.cores
    profile = setting.profile
    if "cores" in resources:
        profile = replace(profile, slowdown={})
    if "server" in resources:
        profile = replace(profile, server_s=0.0)
    if "server cores" in resources:
        profile = replace(profile, server_cores=None)
    if "software" in resources:
        profile = replace(profile, software=None)
    clock = replace(setting, profile=profile).clock(workers)
    for resource in resources:
        if resource == "server link":
            clock = replace(clock, server_link=Link())
        elif resource == "worker link":
            clock = replace(clock, link=Link())
        elif resource == "stragglers":
            clock = replace(clock, gradient_s=mean_s(clock.gradient_s), stragglers={})
        elif resource == "cores":
            cores = None
    return setting.play(workers, (clock, cores)).samples_per_s if setting.most(clock) >= least else 0.0


def _reduced_without(setting: Setting, rule: WithoutServer, workers: int, resources: Sequence[Resource]) -> Point:
    profile, joined = setting.profile, setting.joined
    if "worker link" in resources:
        joined, profile = Network(), replace(profile, node=None)
    if "stragglers" in resources:
        profile = replace(profile, gradient_s=profile.gradient_mean_s, stragglers={})
    if "cores" in resources:
        profile = replace(profile, cores=None, slowdown={})
    return rule.play(profile, workers, joined, setting.network == links.OWN, setting.seed)


# --- what would move it ----------------------------------------------------------------------------------------------


def find_changes(
    setting: Setting, workers: int, reached: float, tell: Callable[[str], None] = lambda words: None
) -> list[Change]:
    """What a person could change for more samples a second, most first."""
    changes, within = [], setting.reliability.updates_per_s
    for words, changed in _changes(setting, workers):
        if changed.allows(workers):
            tell(f"{label(setting.rule)}, {workers_words(workers)}: {words}")
            if changed.most(changed.clock(workers)) < TELLING * reached:
                continue
            factor = changed.play(workers).samples_per_s / reached
            if factor >= TELLING:
                changes.append(Change(words, workers, factor, *within.likely_ratio(factor)))
    return sorted(changes, key=lambda change: -change.factor)


def _changes(setting: Setting, workers: int) -> list[tuple[str, Setting]]:
    profile, rule = setting.profile, setting.rule
    if isinstance(rule, WithoutServer):
        return _reduced_changes(setting, rule)
    more = [factor * setting.shards for factor in (2, 4) if factor * setting.shards <= MOST_SHARDS]
    counts = [shards for shards in more if not profile.sparse or shards in profile.shard_shares]
    useful = sorted({_fewest(profile, setting.shards, shards) for shards in counts} - {setting.shards})
    changes = [(f"{shards} shards", replace(setting, shards=shards)) for shards in useful]
    if profile.server_machines != "each" and not profile.sparse:
        shards = _fewest(profile, 2, max(4, setting.shards))
        each = replace(profile, server_machines="each", server_cores=None)
        words = f"{shards} shards, each on a node with its own link"
        changes.append((words, replace(setting, profile=each, shards=shards)))
    if profile.server_machines != "workers" and not profile.sparse and workers > 1 and setting.joined.link != Link():
        shards = _fewest(profile, 2, max(4, setting.shards, min(workers, MOST_SHARDS)))
        spread = replace(profile, server_machines="workers")
        words = f"{shards} shards on the workers' nodes (server_machines: workers)"
        changes.append((words, replace(setting, profile=spread, shards=shards)))
    if not profile.sparse:
        changes += _lighter_changes(setting)
    changes.append((f"{2 * profile.batch_size} samples per gradient", replace(setting, profile=_doubled(profile))))
    if rule != Async():
        changes.append(("rule async", replace(setting, rule=Async())))
    if rule == Sync() and workers > 1:
        spare = max(1, workers // BACKUPS)
        changes.append((f"backup_workers: {spare}", replace(setting, rule=Sync(spare))))
    if (faster := links.FASTER.get(setting.network)) is not None:
        changes.append((links.WORDS[faster], replace(setting, network=faster)))
    return changes


def _reduced_changes(setting: Setting, rule: WithoutServer) -> list[tuple[str, Setting]]:
    changes = [(f"{2 * setting.profile.batch_size} samples per gradient",
                replace(setting, profile=_doubled(setting.profile)))]  # fmt: skip
    changes += [(words, replace(setting, rule=changed)) for words, changed in rule.changes(setting.profile)]
    if (faster := links.FASTER.get(setting.network)) is not None:
        changes.append((links.WORDS[faster], replace(setting, network=faster)))
    return changes


def _fewest(profile: Profile, least: int, most: int) -> int:
    """Shards, `least` times a power of two and at most `most`: no more than make the largest of them smaller."""
    counts = [least]
    while 2 * counts[-1] <= most:
        counts.append(2 * counts[-1])
    smallest = profile.share(counts[-1])
    return next(count for count in counts if profile.share(count) * SAME <= smallest)


def _lighter_changes(setting: Setting) -> list[tuple[str, Setting]]:
    """Fewer bytes, fewer pushes, and pushes under way meanwhile: what a model with sparse tables refuses."""
    profile, rule = setting.profile, setting.rule
    codecs = () if setting.coded else (("bf16", 2), ("int8", 4))
    changes = [
        (f"{name}: 1/{parts} of the bytes", replace(setting, profile=_lighter(profile, parts)))
        for name, parts in codecs
    ]
    is_plain = setting.local == NoLocalSteps()
    if rule == Async() and is_plain:
        changes.append(("pushing sums of 4 gradients (local: downpour)", replace(setting, local=Downpour())))
    if rule == Async() and not setting.local.sums and setting.cores is None and not setting.overlap:
        words = "computing gradients while pushes are being sent (host: overlap)"
        changes.append((words, replace(setting, overlap=True)))
    if rule in (Async(), Sync()) and is_plain:
        local = LocalSGD(LOCAL_STEPS)
        words = f"local SGD, averaging every {LOCAL_STEPS} steps (local: {local.name})"
        changes.append((words, replace(setting, local=local)))
    return changes


def _lighter(profile: Profile, parts: int) -> Profile:
    return replace(profile, push_bytes=profile.push_bytes / parts, pull_bytes=profile.pull_bytes / parts)


def _doubled(profile: Profile) -> Profile:
    """Twice the samples, which take twice as long."""
    return replace(profile, gradient_s=scaled_s(profile.gradient_s, 2.0), batch_size=2 * profile.batch_size)
