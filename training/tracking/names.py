"""Every metric, tag and artifact that Scalebook writes to MLflow, named once.

A metric's MLflow step is always the number of updates. `samples`, `seconds` and `bytes` are logged at the same step, so
a curve can be drawn against any of the four. Metrics that a model logs keep their names.
"""

import difflib
import posixpath
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

# Curves of every run
TRAINING: Final = "train/"
"""Prefix of training metrics."""
TRAIN_LOSS: Final = "train/loss"
VAL_LOSS: Final = "val/loss"
VAL_ACCURACY: Final = "val/accuracy"  # share of the validation images classified right, 0 to 1
TRAIN_BITS_PER_DIM: Final = "train/bits_per_dim"
VAL_BITS_PER_DIM: Final = "val/bits_per_dim"  # negative log-likelihood in bits per pixel and channel
VAL_MRR: Final = "val/mrr"  # mean reciprocal rank of the right document among those of validation, 0 to 1
VAL_RECALL_10: Final = "val/recall_at_10"  # share of the queries whose document is among the first ten
VAL_CHRF: Final = "val/chrf"  # F-score of the letters' n-grams of translations, over a part of validation, 0 to 1
VAL_AUC: Final = "val/auc"  # area under the ROC curve, 0 to 1

# The x-axes
UPDATES: Final = "updates"  # applications of a gradient to the parameters, over all workers
SAMPLES: Final = "samples"  # training samples whose gradient was computed, over all workers
SECONDS: Final = "seconds"  # since the first training batch began, validation included
BYTES: Final = "bytes"  # handed in and taken by all workers so far; not recorded where nobody counts them
AXES: Final = (UPDATES, SAMPLES, SECONDS, BYTES)

# Throughput and where the time of the workers went (shares of their wall time, 0 to 1)
UPDATES_PER_SECOND: Final = "perf/updates_per_second"
SAMPLES_PER_SECOND: Final = "perf/samples_per_second"
COMPUTE_SHARE: Final = "perf/compute_share"
WAIT_SHARE: Final = "perf/wait_share"  # parameter server: for rule and locks; under DDP it is part of communicate
COMMUNICATE_SHARE: Final = "perf/communicate_share"
DATA_SHARE: Final = "perf/data_share"
SHARES: Final = (COMPUTE_SHARE, WAIT_SHARE, COMMUNICATE_SHARE, DATA_SHARE)
PARTS: Final = {name.removeprefix("perf/").removesuffix("_share"): name for name in SHARES}
"""compute, wait, communicate, data -> the metric of its share."""
REAL_SECONDS: Final = "perf/real_seconds"  # of a run whose own seconds are virtual, since its first batch began
GRADIENTS_PER_UPDATE: Final = "perf/gradients_per_update"  # of all workers, by optimizer; with a parameter server
PEAK_MEMORY_MB: Final = (
    "system/peak_memory_megabytes"  # of worker 0, and by worker: its PSS, or what is allocated on its GPU
)
PUSHED_PER_UPDATE: Final = "perf/bytes_pushed_per_update"  # gradients handed in by all workers, as they travelled
PULLED_PER_UPDATE: Final = "perf/bytes_pulled_per_update"  # parameters taken

# Runs with a parameter server
STALENESS_MEAN: Final = "ps/staleness_mean"  # updates between the version pulled and the version pushed to
STALENESS_P95: Final = "ps/staleness_p95"
STALENESS_SECONDS: Final = "ps/staleness_seconds"  # mean age of the parameters that a gradient was computed from
DRIFT: Final = "ps/drift"  # mean ||w - w_base||: how far the parameters moved meanwhile; where it is recorded
BUFFERS_APART: Final = "ps/buffers_apart"  # largest distance of a worker's from their mean, in parts of its norm,
# before they are brought together; where training changes others than running statistics of normalisation
DROPPED: Final = "ps/dropped"  # gradients that rule or damping refused
DUPLICATES: Final = "ps/duplicates"  # pushes that came a second time and were not applied again

TOLD: Final = frozenset({STALENESS_MEAN})
"""Recorded even if 0 throughout the run, which is information; other metrics of `perf/` and `ps/` are not."""
FOLLOWS: Final[Mapping[str, str]] = {
    UPDATES_PER_SECOND: SAMPLES_PER_SECOND,
    PULLED_PER_UPDATE: PUSHED_PER_UPDATE,
}
"""Metrics that are not recorded, because `completed` computes them from the axes and another metric."""
UNRECORDED: Final = frozenset({*FOLLOWS, STALENESS_SECONDS})
"""Measured, but not a metric of the run: staleness in seconds is in `pushes.json`, by worker and shard."""

# Gradient noise scale, where it is measured (scalebook.training.lightning.callbacks.noise_scale)
NOISE_SCALE: Final = "noise/scale"  # B_simple, samples
NOISE_LOW: Final = "noise/scale_low"  # 95 % interval
NOISE_HIGH: Final = "noise/scale_high"
NOISE_BATCH: Final = "noise/batch_suggested"  # a batch of all workers together

# Tests of a config (scalebook.training.planner.tuning)
RATE_STEEPEST: Final = "rates/steepest"  # learning rate where the loss of a range test falls fastest
RATE_LARGEST: Final = "rates/largest"  # the largest that still trains
LARGEST_BATCH: Final = "batch/largest"  # samples of one worker that fit into memory
LARGEST_GLOBAL: Final = "batch/largest_global"


SYSTEM: Final = "system/"  # what a run takes of its machine, as MLflow itself names it; step: the number of the sample

BEST: Final = "best/"
"""Prefix of best values; only metrics that a run logged while validating have them."""
MEASURED: Final = ("perf/", "ps/", PEAK_MEMORY_MB)
"""Prefixes of metrics that measure the run itself."""
ONCE: Final = (BEST, "final/")
"""Prefixes of metrics of a whole run."""


def best(metric: str) -> str:
    """The name of the run's best value of `metric` over all validations so far."""
    return f"{BEST}{metric}"


def final(metric: str) -> str:
    """The name of the run's last value of `metric`."""
    return f"final/{metric}"


def per_worker(metric: str, worker: int) -> str:
    """The name of one worker's `metric`, as in `workers.jsonl`."""
    return f"worker_{worker}/{metric}"


EARLIER: Final[Mapping[str, str]] = {"perf/peak_memory_mb": PEAK_MEMORY_MB}
"""Metric names of earlier versions -> present names."""


def completed(metrics: Mapping[str, float]) -> dict[str, float]:
    """Values of one update of a run under present names, with those that can be computed from them."""
    values = {EARLIER.get(name, name): value for name, value in metrics.items()}
    updates, samples = values.get(UPDATES, 0.0), values.get(SAMPLES, 0.0)
    if SAMPLES_PER_SECOND in values and samples > 0:
        values.setdefault(UPDATES_PER_SECOND, values[SAMPLES_PER_SECOND] * updates / samples)
    if PUSHED_PER_UPDATE in values and values.get(BYTES, 0.0) > 0 and updates > 0:
        values.setdefault(PULLED_PER_UPDATE, max(0.0, values[BYTES] / updates - values[PUSHED_PER_UPDATE]))
    return values


# Tags
TAG_CELL: Final = "scalebook.cell"
TAG_NOTEBOOK: Final = "scalebook.notebook"
TAG_CONFIG_HASH: Final = "scalebook.config_hash"
TAG_MODULES: Final = "scalebook.modules"  # JSON: file of the person's own code -> digest (training/base/own_modules.py)
TAG_SEED: Final = "scalebook.seed"
TAG_STATUS: Final = "scalebook.status"  # finished, failed, stopped: MLflow has no word for the last
TAG_FAILURE: Final = "scalebook.failure"  # the failure class
TAG_CAUSE: Final = "scalebook.cause"  # one line: which process, why
TAG_ADVICE: Final = "scalebook.advice"  # what to do about it
TAG_STRATEGY: Final = "scalebook.strategy"  # single, ddp, AsyncPS, or the name of another class
TAG_RULE: Final = "scalebook.rule"
TAG_WORKERS: Final = "scalebook.workers"
TAG_CLOCK: Final = "scalebook.clock"  # VIRTUAL where `seconds` is the time of virtual workers
VIRTUAL: Final = "virtual"
REAL: Final = "real"  # the parameter `clock` of all other runs
NO_RULE: Final = "none"  # the parameter `rule` of a run whose strategy has none
UNKNOWN: Final = "unknown"  # a parameter that its config does not say, as MLflow's charts call it
TAG_BATCH_PER_WORKER: Final = "scalebook.batch_per_worker"
TAG_BATCH_GLOBAL: Final = "scalebook.batch_global"
TAG_LR_ASKED: Final = "scalebook.learning_rate"
TAG_LR_SCALED: Final = "scalebook.learning_rate_scaled"
TAG_MODEL: Final = "scalebook.model"
TAG_DATA: Final = "scalebook.data"
TAG_COMMIT: Final = "mlflow.source.git.commit"
TAG_UNCOMMITTED: Final = "scalebook.uncommitted"  # yes, no: whether files of the folder differ from the commit
TAG_NOTE: Final = "mlflow.note.content"  # MLflow's Description, of a run and of an experiment; also people's notes
TAG_SOURCE: Final = "mlflow.source.name"  # MLflow's column Source: the notebook, or that it is ours
TAG_SOURCE_TYPE: Final = "mlflow.source.type"
TAG_VERSIONS: Final = "scalebook.versions"  # JSON: package -> version
TAG_HOST: Final = "scalebook.host"
TAG_DEVICES: Final = "scalebook.devices"
TAG_MACHINE: Final = "scalebook.machine"  # of the machine that it ran on: how many cores, which GPUs
TAG_TEST: Final = "scalebook.test"  # plan, learning rates, largest batch: a run that only tests a config
TEST_PLAN: Final = "plan"
TAG_GOALS: Final = "scalebook.better"  # the same, as a person says it; it comes first
TAG_DIRECTIONS: Final = "scalebook.directions"  # JSON: metric -> min or max, as config or torchmetrics say it
TAG_NOISE: Final = "scalebook.noise_scale"  # the batch that the gradient noise scale suggests, in a sentence
TAG_OWN: Final = "scalebook.own_metrics"  # of DDP: names of metrics that are not of all workers' data together
TAG_CLAIMS: Final = "scalebook.claims"  # names of the claims that spoke of its cell when it was submitted
TAG_CLAIM: Final = "scalebook.claim."  # with a number: JSON, all that one of them said then
LONGEST_TAG: Final = 8000  # characters, in MLflow; longer ones it cuts
TAG_SUBMISSION: Final = "scalebook.submission"  # what began the run; names a file while the run has no folder yet
TAG_PARENT: Final = "mlflow.parentRunId"  # of a trial: its search
TAG_SEARCH: Final = "scalebook.search"  # of a search's own run: what it is called
TAG_BEST_TRIAL: Final = "scalebook.best_trial"  # of a search: number of the trial with the best first objective
TAG_TRIAL: Final = "scalebook.trial"  # number of the trial within its search
TAG_POINT: Final = "scalebook.point"  # what the trial tries, in words
TAG_TRIAL_STATE: Final = "scalebook.trial_state"  # finished, pruned, infeasible, failed, interrupted: as the study says

# A search's own run, by the number of trials that have ended
SEARCH_BEST: Final = "search/best"
SEARCH_ENDED: Final = "search/trials"

# Artifacts
CONFIG_ARTIFACT: Final = "config.yaml"
MODULES: Final = "modules"  # folder: the person's own modules that the run used
SEARCH_ARTIFACT: Final = "search.yaml"
STALENESS_JSON: Final = "staleness.json"  # {"counts": [[per bin] per worker]}; bin i = staleness i, last = or more
WORKERS_JSONL: Final = "workers.jsonl"  # figures of single workers (worker_figures.py)
PUSHES_JSON: Final = "pushes.json"  # the same counts, pushes by worker and shard, and each worker's seconds
TIMINGS_JSON: Final = "timings.json"  # seconds of gradients by worker, and of a push at a shard; clocks are made of it
STALENESS_PICTURE: Final = "staleness.png"
RATES_JSON: Final = "rates.json"  # of a learning-rate range test: rates, losses, diverged, steepest, largest
RATES_PICTURE: Final = "rates.png"
BATCH_JSON: Final = "batch.json"  # of a try of a batch size: training samples, seconds a step, memory
BATCHES_JSON: Final = "batches.json"  # of the largest-batch test: every try
SAMPLES_PICTURE: Final = "samples.png"
LOG_ARTIFACT: Final = "log.txt"

SPOOL: Final = "mlflow"  # folder of a job on another machine: what it tells MLflow, on its way to the store


def is_simulated(tags: Mapping[str, str]) -> bool:
    """Whether the run's seconds are those of simulated workers."""
    return tags.get(TAG_CLOCK) == VIRTUAL


def axis_words(axis: str, simulated: Collection[bool]) -> str:
    """The title of an axis over runs, of which some may be simulated: their seconds are called virtual."""
    if axis != SECONDS or not any(simulated):
        return axis
    return "virtual seconds" if all(simulated) else "seconds, virtual or measured"


def time_words(simulated: Collection[bool]) -> str:
    """A note on the seconds of runs, of which some may be simulated; "" if all are measured."""
    if not any(simulated):
        return ""
    if all(simulated):
        return (
            "Virtual workers: one process simulates all of them. Seconds, and rates per second, are those of the "
            "declared clock, not of this machine."
        )
    return (
        "Virtual and measured runs together: for virtual workers, seconds and rates per second are those of the "
        "declared clock."
    )


RECORDABLE: Final = re.compile(r"[/\w.\- :]{1,250}")
"""Metric names that MLflow accepts; they must be valid as file names."""
RECORDABLE_WORDS: Final = (
    "MLflow accepts only letters, digits, spaces and _ - . : / and no name that is invalid as a file's"
)


def recordable(metric: str) -> bool:
    """Whether MLflow accepts this metric name, and the names of its best and final value."""
    elsewhere = metric.startswith(("/", "..")) or posixpath.normpath(metric) != metric
    return RECORDABLE.fullmatch(final(metric)) is not None and metric != "." and not elsewhere


def validation_metrics(metrics: Iterable[str]) -> list[str]:
    """The metrics that a run logged while validating, sorted: those with a best value, and those whose names begin with
    `val/` or `val_`."""
    logged = set(metrics)
    marked = {name.removeprefix(BEST) for name in logged if name.startswith(BEST)}
    return sorted(marked | {name for name in logged if name.startswith(("val/", "val_"))})


def unlogged(metric: str, logged_metrics: Iterable[str], one: bool = False) -> str:
    """A sentence that runs (`one`: a run) have not logged `metric`, with those of `logged_metrics` that may be meant,
    the closest name first."""
    metrics = set(logged_metrics)
    validated = validation_metrics(metrics)
    logged = validated or [name for name in (own_training_loss(metrics), TRAIN_LOSS) if name in metrics]
    close = difflib.SequenceMatcher(b=metric)

    def distance(name: str) -> float:
        close.set_seq1(name)
        return -close.ratio()

    who, they = ("the run has", "it") if one else ("its runs have", "they")
    kind = f"while validating {they} logged" if validated else f"{they} logged"
    return f"{who} not logged {metric}; {kind} {', '.join(sorted(logged, key=distance)) or 'nothing'}"


def own_training_loss(metrics: Iterable[str]) -> str | None:
    """The training loss that the model itself logs under a name other than `train/loss`, such as `train_loss` or
    `train/loss_step`: its curve is the same as that of `train/loss`."""
    for name in sorted(metrics):
        words = name.replace("/", "_").split("_")
        if name != TRAIN_LOSS and words in (["train", "loss"], ["training", "loss"], ["train", "loss", "step"]):
            return name
    return None


def main_metric(metrics: Iterable[str]) -> str | None:
    """The metric by which runs are compared: the first that is there of validation bits, accuracy, rank, chrF, AUC,
    loss, any other validation metric, training loss."""
    logged = set(metrics)
    validated = validation_metrics(logged)
    for name in (VAL_BITS_PER_DIM, VAL_ACCURACY, VAL_MRR, VAL_CHRF, VAL_AUC, VAL_LOSS):
        if name in validated:
            return name
    if validated:
        return min(validated, key=lambda name: (not name.endswith("loss"), name))
    return own_training_loss(logged) or (TRAIN_LOSS if TRAIN_LOSS in logged else None)
