"""The profile of a config on this machine, from a short run in a process of its own."""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from time import monotonic, process_time, sleep, time
from typing import Any, Final, TextIO

import psutil

from scalebook.training.base import FailureClass, Workspace
from scalebook.training.base.files import records
from scalebook.training.engine.rules import Distribution, Link, Seconds
from scalebook.training.experiments import Experiment
from scalebook.training.jobs import (
    JobFolder,
    Result,
    job_requests,
    machine_words,
    read_usage,
    supervisor_handle,
    this_machine,
)
from scalebook.training.planner.planned_config import STRATEGY, PlannedConfig, configured
from scalebook.training.planner.question import MOST_WORKERS
from scalebook.training.planner.step_times import FILE, StepMeasures
from scalebook.training.planner.tuning.followed_job import follow
from scalebook.training.planner.tuning.tuning_config import shorten_training
from scalebook.training.pricing import Layer, Profile, SharedNode, Software, scaled, workers_words
from scalebook.training.tracking import names, run_start

CALLBACK: Final = "scalebook.training.planner.step_times.StepTimes"
TEST: Final = names.TEST_PLAN
SECONDS: Final = 6.0
MOST: Final = 1000
"""Most steps of worker 0, alone and again beside others."""
MOST_BESIDE: Final = 16
"""Most workers that are measured at once, if the machine has cores for more."""
ON_ONE_GPU: Final = 2
"""Workers that are measured at once, at least, where all share one GPU."""
QUIET_S: Final = 0.5
LEAST_BUSY: Final = 0.3
"""Cores: what a desktop at rest uses changes little."""
WAIT_S: Final = 20.0
"""Longest wait for a quieter machine before a measurement is repeated."""
OTHERS: Final = "other processes used {:.1f} cores of this machine"
EVEN: Final = 0.005
"""Coefficient of variation below which all gradients take the same."""


class NotMeasured(RuntimeError):
    """The measured run failed, or was stopped; the message says why, and where its log is."""


def measure(workspace: Workspace, experiment: Experiment, out: TextIO) -> Profile:
    """Train for a few seconds with as many workers of a parameter server as the machine has cores, or on GPUs with the
    config's own workers if these are more than the GPUs; worker 0 computes alone first. The run is recorded as any
    other. `Profile.busy` says how many cores other processes used; if any, it is measured once more, and the quieter
    measurement counts. If both were busy, `Profile.apart` says how much they differ.

    NotMeasured if the run recorded nothing. Ctrl-C ends the run and is raised again.
    """
    plan = configured(experiment)
    first = _measured(workspace, plan, out)
    if not first.busy:
        return plan.declared(first)
    print(f"scalebook: {OTHERS.format(first.busy)}, so the measurement is repeated within {WAIT_S:g} s", file=out)
    wait_for_quiet()
    second = _measured(workspace, plan, out)
    quieter = min(second, first, key=lambda profile: profile.busy)
    apart = first.apart_from(second) if quieter.busy else 1.0
    return plan.declared(replace(quieter, apart=apart, source=f"{quieter.source}, the quieter of two measurements"))


def _measured(workspace: Workspace, plan: PlannedConfig, out: TextIO) -> Profile:
    """Of one run; of one with a single worker, where two do not fit into the memory of their GPU."""
    experiment, gpus = plan.experiment, _gpus(plan.experiment.accelerator)
    for workers in [1] if plan.is_simulated else _at_once(experiment, gpus):
        job, result, busy = _run(workspace, plan_config(experiment, workers, plan.measuring, gpus), out)
        if result.failure != FailureClass.OUT_OF_MEMORY:
            break
        print(f"scalebook: not enough memory for {workers_words(workers)} at once", file=out)
    measures = records.peek(job.path / FILE, StepMeasures)
    if measures is None or measures.steps < 1:
        why = result.why or "it recorded nothing"
        raise NotMeasured(
            f"the measurement {result.status}. {why.rstrip('.')}. Log: `scalebook jobs log {job.id[:8]}`."
        )
    cores = max(gpus, workers) if gpus else len(this_machine().cores) // experiment.threads
    profile = profile_of(measures, _title(job), max(1, cores), experiment.batch.accumulate)
    return replace(profile, gpus=gpus, busy=0.0 if plan.is_simulated else busy)


def _run(workspace: Workspace, experiment: Experiment, out: TextIO) -> tuple[JobFolder, Result, float]:
    """The job, its end, and the cores that other processes used before, during or after it."""
    before, machine = used_by_others(), MachineWatch()
    with supervisor_handle.hold_supervisor(workspace):
        (job,) = job_requests.submit(workspace, experiment, seeds=experiment.seeds(1))
        run_start.open_store(workspace).set_tag(job.id, names.TAG_TEST, TEST)
        print(f"scalebook: measuring with up to {SECONDS:g} s of training ({job.id[:8]})", file=out)
        out.flush()
        result = follow(workspace, job, machine.look)
    return job, result, max(before, machine.others(job), used_by_others())


def wait_for_quiet() -> None:
    """Wait until other processes use no cores; WAIT_S at most."""
    until = monotonic() + WAIT_S
    while used_by_others() and monotonic() < until:
        pass


def used_by_others() -> float:
    """Cores that other processes use just now, looked at for QUIET_S; 0.0 where they are fewer than LEAST_BUSY."""
    began, own, before = monotonic(), process_time(), machine_cpu_s()
    sleep(QUIET_S)
    return _told((machine_cpu_s() - before - (process_time() - own)) / (monotonic() - began))


def _told(cores: float) -> float:
    return round(cores, 1) if cores >= LEAST_BUSY else 0.0


def machine_cpu_s() -> float:
    """CPU seconds that all processes of this machine have used."""
    times = psutil.cpu_times()
    return float(times.user + getattr(times, "nice", 0.0) + times.system)


class MachineWatch:
    """What the machine uses while a job runs. What is more than the job's own `usage` is used by others."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, float]] = []
        """Unix time, and CPU seconds of the machine until then."""

    def look(self, job: JobFolder, reason: str) -> None:
        """Called often while the job runs."""
        if not self._seen or time() - self._seen[-1][0] >= QUIET_S:
            self._seen.append((time(), machine_cpu_s()))

    def others(self, job: JobFolder) -> float:
        """Mean cores of others between the first and the last sample of the job's usage; 0.0 as `used_by_others`."""
        started, samples = job.started(), read_usage(job)
        if started is None or len(samples) < 2 or not self._seen:
            return 0.0
        own_s = sum(sample.cores * (sample.seconds - before.seconds) for before, sample in pairwise(samples))
        began, ended = started.started + samples[0].seconds, started.started + samples[-1].seconds
        return _told((self._until(ended) - self._until(began) - own_s) / (ended - began))

    def _until(self, moment: float) -> float:
        """CPU seconds of the machine, linear between two looks."""
        for (before, used_s), (after, later_s) in pairwise(self._seen):
            if moment <= after:
                return used_s + (later_s - used_s) * max(0.0, moment - before) / (after - before)
        return self._seen[-1][1]


def plan_config(experiment: Experiment, workers: int, arguments: Mapping[str, Any], gpus: int = 0) -> Experiment:
    """The experiment with `workers` real workers of a parameter server on this machine, cut to a few steps; on GPUs,
    if it has any. `arguments`: of AsyncPS, as `PlannedConfig.measuring`."""
    short = shorten_training(
        experiment, MOST * (1 + workers), {"class_path": CALLBACK, "init_args": {"seconds": SECONDS, "most": MOST}}
    )
    own = {**arguments, "workers": workers} if gpus else dict(arguments)
    trainer = {
        **short.written["trainer"],
        "strategy": {"class_path": STRATEGY, "init_args": own},
        "devices": min(gpus, workers) if gpus else workers,
    }
    trainer.pop("num_nodes", None)
    return short.with_config({**short.written, "trainer": trainer})


def profile_of(measures: StepMeasures, title: str, cores: int | None, accumulate: int = 1) -> Profile:
    """The profile of workers that are processes of this machine and hand over pushes in its memory. `accumulate`:
    batches that make one gradient, whose times add up. Workers that seem faster next to others than alone were
    measured on a busy machine: they count as not slowed down, since no more cores work than the machine has."""
    gradient: Seconds = measures.gradient_s * accumulate
    if (cv := measures.cv / math.sqrt(accumulate)) > EVEN:
        gradient = Distribution("gamma", measures.gradient_s * accumulate, cv)
    machine = this_machine()
    link = reduce_link(measures)
    return Profile(
        gradient_s=gradient,
        batch_size=measures.batch_size * accumulate,
        push_bytes=measures.push_bytes,
        pull_bytes=measures.pull_bytes,
        server_s=measures.server_s,
        update_s=measures.server_s,
        cores=cores,
        server_cores=len(machine.cores),
        software=software_of(measures),
        slowdown={measures.at_once: max(1.0, measures.slowdown)} if measures.at_once > 1 else {},
        shard_shares={int(shards): share for shards, share in measures.shard_shares.items()},
        sparse=measures.sparse,
        node=None if link is None else SharedNode(MOST_WORKERS, link),
        weights=measures.weights,
        state=measures.state,
        ready=ready_of(measures, accumulate),
        overlap=link is None,
        all_reduce="fastest" if link is None else "ring",
        layers=layers_of(measures, accumulate),
        memory=measures.memory,
        microbatches={int(count): factor for count, factor in measures.microbatches.items()},
        title=title,
        source=f"measured in {measures.steps:,} steps on {machine_words(len(machine.cores), machine.gpus)}",
    )


def software_of(measures: StepMeasures) -> Software | None:
    """Half of a frame's seconds for each end; both copy its bytes at the same time. None if none was measured."""
    if len(measures.message_s) != 2:
        return None
    (few, short_s), (many, long_s) = measures.message_s
    short_s = min(short_s, 0.9 * long_s)
    return Software(short_s / 2, (many - few) / (long_s - short_s))


def ready_of(measures: StepMeasures, accumulate: int = 1) -> tuple[tuple[float, float], ...]:
    """`Profile.ready`: shares of a gradient's time. Of batches that make one gradient the last one counts."""
    whole = measures.gradient_s * accumulate
    shares = [max(0.0, 1 - before / whole) if whole else 1.0 for before, _ in measures.ready]
    return tuple((min(1.0, share), nbytes) for share, (_, nbytes) in zip(shares, measures.ready, strict=True))


def layers_of(measures: StepMeasures, accumulate: int = 1) -> tuple[Layer, ...]:
    """Of batches that make one gradient, whose seconds and outputs add up; what is kept is of one of them."""
    longer = scaled(measures.layers, accumulate)
    return tuple(replace(layer, output_bytes=accumulate * layer.output_bytes) for layer in longer)


def reduce_link(measures: StepMeasures) -> Link | None:
    """The link by which a ring of these workers takes what two all-reduces took; None if none were measured. At least a
    tenth of the longer one's time counts as that of its bytes, even if noise says otherwise."""
    if len(measures.reduce_s) != 2 or measures.at_once < 2:
        return None
    (few, short_s), (many, long_s) = measures.reduce_s
    share = 2 * (measures.at_once - 1) / measures.at_once
    short_s = min(short_s, 0.9 * long_s)
    return Link(short_s / (2 * (measures.at_once - 1)), share * (many - few) / (long_s - short_s))


def _title(job: JobFolder) -> str:
    model = job.content().get("model")
    name = model.get("class_path") if isinstance(model, Mapping) else model
    return str(name).rpartition(".")[2] or "a config"


def _gpus(accelerator: str) -> int:
    """GPUs of this machine on which a config computes; 0 on its cores."""
    machine = this_machine()
    return machine.together if accelerator in ("gpu", "cuda") or (accelerator == "auto" and machine.gpus) else 0


def _at_once(experiment: Experiment, gpus: int) -> list[int]:
    """Workers that are measured at once, most first: as many as there are cores for them; on GPUs as many as the config
    has if it shares them, on a single one at least two if they fit into its memory, else one on each."""
    if not gpus:
        return [max(1, min(len(this_machine().cores) // experiment.threads, MOST_BESIDE))]
    least = min(max(gpus, experiment.strategy.workers // experiment.strategy.nodes), MOST_BESIDE)
    return [ON_ONE_GPU, 1] if (gpus, least) == (1, 1) else [least]
