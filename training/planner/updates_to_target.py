"""How many updates a config needs to reach a target: simulated runs of the user's own model."""

import statistics
from collections.abc import Sequence
from typing import Any, TextIO

from scalebook.training.base import ConfigError, Workspace
from scalebook.training.engine.rules import (
    Bandwidth,
    BySettings,
    ClockSettings,
    Distribution,
    Link,
    Rule,
    Seconds,
)
from scalebook.training.experiments import VIRTUAL, Experiment, key_of
from scalebook.training.jobs import JobFolder, job_requests, supervisor_handle
from scalebook.training.planner.all_reduce import WithoutServer
from scalebook.training.planner.answering import Setting
from scalebook.training.planner.measuring import TEST, NotMeasured
from scalebook.training.planner.planned_config import PEERS, STRATEGY
from scalebook.training.planner.planned_peers import PlannedPeers
from scalebook.training.planner.question import label
from scalebook.training.planner.time_to_target import TargetAnswer, TargetPoint
from scalebook.training.planner.tuning.followed_job import follow
from scalebook.training.pricing import links, workers_words
from scalebook.training.tracking import RunReader, directions, names, run_start


def reach(
    workspace: Workspace,
    experiment: Experiment,
    setting: Setting,
    workers: Sequence[int],
    metric: str,
    target: float,
    seeds: int,
    out: TextIO,
) -> TargetAnswer:
    """Train with each number of simulated workers, and simulate each number's seconds. NotMeasured if a run fails, or
    has validated without the metric; ConfigError as `check_metric`."""
    check_metric(experiment, metric)
    allowed = [count for count in workers if setting.allows(count)]
    lower: bool | None = None
    points, runs = [], []
    with supervisor_handle.hold_supervisor(workspace):
        for count in allowed:
            virtual = simulated(experiment, count, setting)
            jobs = job_requests.submit(workspace, virtual, seeds=virtual.seeds(seeds))
            needed = []
            for job in jobs:
                run_start.open_store(workspace).set_tag(job.id, names.TAG_TEST, TEST)
                print(f"scalebook: training with {workers_words(count, 'virtual ')} ({job.id[:8]})", file=out)
                out.flush()
                _finished(workspace, job, metric)
                curve = RunReader(workspace.tracking_uri()).curve(job.id, metric)
                if not curve.values:
                    raise NotMeasured(
                        f"{metric}: the run {job.id[:8]} has no such metric. Use a metric that the model logs."
                    )
                if lower is None:  # as the first run records it
                    tags = RunReader(workspace.tracking_uri()).run(job.id).tags
                    lower = directions.of_runs(metric, None, [tags], [experiment.callbacks]).lower
                needed.append(curve.first_at("updates", target, lower))
                runs.append(job.id)
            reached = [updates for updates in needed if updates is not None]
            mean = statistics.fmean(reached) if len(reached) == len(needed) else None
            points.append(TargetPoint(count, mean, setting.play(count).updates_per_s))
    return TargetAnswer(metric, target, label(setting.rule), setting.network, seeds, points, runs)


def check_metric(experiment: Experiment, metric: str) -> None:
    """ConfigError for a metric that the experiment's model, one of Scalebook's own, does not record. What other models
    record is known once they have validated."""
    model = experiment.model.info
    if model is None or model.source != "scalebook" or not model.metrics:
        return
    recorded = [*model.metrics, names.TRAIN_LOSS]
    if metric not in recorded:
        raise ConfigError(
            "--metric", f"is {metric}, which {model.name} does not record", f"Use {' or '.join(recorded)}."
        )


def refuse_unknown(job: JobFolder, metric: str) -> None:
    """NotMeasured, with the recorded names, once the run has validated without recording `metric`."""
    progress = job.progress()
    recorded = sorted(progress.metrics) if progress else []
    late = "train" in metric  # what an epoch of training logs comes after its validation
    if names.validation_metrics(recorded) and metric not in recorded and not late:
        raise NotMeasured(f"{job.id[:8]}: {names.unlogged(metric, recorded, one=True)}.")


def _finished(workspace: Workspace, job: JobFolder, metric: str) -> None:
    result = follow(workspace, job, lambda job, reason: refuse_unknown(job, metric))
    if result.status != "finished":
        raise NotMeasured(
            f"training {result.status}. {result.why.rstrip('.')}. Log: `scalebook jobs log {job.id[:8]}`."
        )


def simulated(experiment: Experiment, workers: int, setting: Setting) -> Experiment:
    """The experiment with `workers` simulated workers, on the clock that is also simulated without gradients. All else
    of its strategy stays. ConfigError for host `overlap`, which simulated workers do not have."""
    if setting.overlap:
        why = "is overlap, but a plan with a target trains with virtual workers, which cannot overlap"
        raise ConfigError(key_of("host"), why, "Set host: process, or plan without a target.")
    if isinstance(setting.rule, WithoutServer) and not isinstance(setting.rule, PlannedPeers):
        why = f"is {setting.rule.name}, but a plan with a target trains with virtual workers of a parameter server"
        raise ConfigError("--strategies", why, "Use sync, a parameter-server rule that makes the same updates.")
    class_path, arguments = _strategy(setting, workers)
    strategy = experiment.strategy
    own = strategy.written if strategy.name == class_path.rpartition(".")[2] else {}
    arguments = {**own, **arguments, "workers": workers, "host": VIRTUAL}
    written = {"class_path": class_path, "init_args": arguments}
    trainer = {**(experiment.written.get("trainer") or {}), "devices": 1, "num_nodes": 1, "strategy": written}
    return experiment.with_config({**experiment.written, "trainer": trainer})


def _strategy(setting: Setting, workers: int) -> tuple[str, dict[str, Any]]:
    """The class that trains what is planned, and what the plan says of its arguments."""
    if isinstance(setting.rule, PlannedPeers):
        peering = setting.rule.peering
        clock = setting.rule.clock(setting.profile, workers, setting.joined, setting.network == links.OWN)
        exchange, topology = _class_of(peering.exchange), _class_of(peering.topology)
        often = {"every": peering.every, "global_every": peering.global_every}
        return PEERS, {"exchange": exchange, "topology": topology, **often, "clock": _clock(clock)}
    assert isinstance(setting.rule, Rule), "strategies without virtual workers are rejected earlier"
    rule, clock = _class_of(setting.rule), setting.clock(workers)
    return STRATEGY, {"rule": rule, "shards": setting.shards, "clock": _clock(clock)}


def _class_of(written: BySettings) -> dict[str, Any]:
    kind = type(written)
    return {"class_path": f"{kind.__module__}.{kind.__qualname__}", "init_args": written.settings()}


def _clock(clock: ClockSettings) -> dict[str, Any]:
    written: dict[str, Any] = {
        "gradient_s": _value(clock.gradient_s),
        "server_s": _value(clock.server_s),
        "link": _link(clock.link),
        "server_link": _link(clock.server_link),
    }
    if clock.server_process:
        written["server_process"] = True
    if clock.stragglers:
        written["stragglers"] = dict(clock.stragglers)
    return written


def _link(link: Link) -> dict[str, Any]:
    return {"latency_s": _value(link.latency_s), "bandwidth": _value(link.bandwidth)}


def _value(value: Seconds | Bandwidth) -> Any:
    if not isinstance(value, Distribution):
        return value
    return {"kind": value.kind, "mean": value.mean} | ({} if value.cv is None else {"cv": value.cv})
