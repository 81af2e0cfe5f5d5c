"""Every metric, tag and artifact that Scalebook writes to MLflow, named once.

A metric's MLflow step is always the number of updates. `samples`, `seconds` and `bytes` are logged at the same step, so
a curve can be drawn against any of the four. Metrics that a model logs keep their names.
"""

import difflib
import posixpath
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

# --- metrics: each docstring is the meaning, then the unit ------------------------------------------------------------

# What the models log
TRAINING: Final = "train/"
"""Prefix of training metrics."""
TRAIN_LOSS: Final = "train/loss"
"""Loss of the training batches. Unit: the loss's own."""
VAL_LOSS: Final = "val/loss"
"""Loss over the validation data. Unit: the loss's own."""
VAL_ACCURACY: Final = "val/accuracy"
"""Share of the validation images that the model classifies right. Unit: 0 to 1."""
TRAIN_BITS_PER_DIM: Final = "train/bits_per_dim"
"""Negative log-likelihood of the training batches. Unit: bits per pixel and channel."""
VAL_BITS_PER_DIM: Final = "val/bits_per_dim"
"""Negative log-likelihood of the validation images. Unit: bits per pixel and channel."""
VAL_MRR: Final = "val/mrr"
"""Mean reciprocal rank of the right document among all documents of the validation data. Unit: 0 to 1."""
VAL_RECALL_10: Final = "val/recall_at_10"
"""Share of the queries whose document is among the first ten. Unit: 0 to 1."""
VAL_CHRF: Final = "val/chrf"
"""F-score of the letter n-grams of translations, over a part of the validation data. Unit: 0 to 1."""
VAL_AUC: Final = "val/auc"
"""Area under the ROC curve over the validation data. Unit: 0 to 1."""

# The x-axes, logged with each point
UPDATES: Final = "updates"
"""Updates of the parameters so far, by all workers. Not recorded: it is the step of each point. Unit: updates."""
SAMPLES: Final = "samples"
"""Training samples whose gradient was computed so far, by all workers. Unit: samples."""
SECONDS: Final = "seconds"
"""Time since the first training batch began, validation included. Unit: s."""
BYTES: Final = "bytes"
"""Bytes that all workers have pushed and pulled so far. Not recorded if no bytes are counted. Unit: bytes."""
AXES: Final = (UPDATES, SAMPLES, SECONDS, BYTES)

# Throughput, and where the workers' time goes
UPDATES_PER_SECOND: Final = "perf/updates_per_second"
"""Updates per second, of all workers. Unit: 1/s."""
SAMPLES_PER_SECOND: Final = "perf/samples_per_second"
"""Training samples per second, of all workers; of each worker in `workers.jsonl`. Unit: 1/s."""
COMPUTE_SHARE: Final = "perf/compute_share"
"""Share of the workers' wall time in forward and backward passes and steps. Unit: 0 to 1."""
WAIT_SHARE: Final = "perf/wait_share"
"""Share of the workers' wall time that they wait for the rule and for locks of the parameter server. Unit: 0 to 1."""
COMMUNICATE_SHARE: Final = "perf/communicate_share"
"""Share of the workers' wall time in pushes and pulls; under DDP in the all-reduce, and so in waiting for the slowest
worker. Unit: 0 to 1."""
DATA_SHARE: Final = "perf/data_share"
"""Share of the workers' wall time in fetching data. Not recorded: it is what the other three leave. Unit: 0 to 1."""
SHARES: Final = (COMPUTE_SHARE, WAIT_SHARE, COMMUNICATE_SHARE, DATA_SHARE)
PARTS: Final = {name.removeprefix("perf/").removesuffix("_share"): name for name in SHARES}
"""compute, wait, communicate, data -> the metric of its share."""
REAL_SECONDS: Final = "perf/real_seconds"
"""Measured time since the first batch, of a run with virtual workers, whose `seconds` are the clock's. Unit: s."""
GRADIENTS_PER_UPDATE: Final = "perf/gradients_per_update"
"""Gradients that all workers compute for an update of an optimizer: 1 under `async`, more where a rule averages or
drops gradients, or workers make local steps. With a parameter server. Unit: gradients."""
PEAK_MEMORY_MB: Final = "system/peak_memory_megabytes"
"""Peak memory of worker 0 (of each worker in `workers.jsonl`): its PSS, or what it has allocated on its GPU. Unit:
MB."""
PUSHED_PER_UPDATE: Final = "perf/bytes_pushed_per_update"
"""Bytes of the gradients that all workers push for an update, as they travel. Unit: bytes."""
PULLED_PER_UPDATE: Final = "perf/bytes_pulled_per_update"
"""Bytes of the parameters that all workers pull for an update. Not recorded: it follows from `bytes` and
`perf/bytes_pushed_per_update`. Unit: bytes."""

# Runs with a parameter server
STALENESS_MEAN: Final = "ps/staleness_mean"
"""Mean staleness: the version a gradient is applied at, minus the version it was computed from. Unit: updates."""
STALENESS_P95: Final = "ps/staleness_p95"
"""95th percentile of the staleness. Unit: updates."""
STALENESS_SECONDS: Final = "ps/staleness_seconds"
"""Mean age of the parameters from which gradients were computed. Not a metric of the run: `pushes.json` has it by
worker and shard. Unit: s."""
DRIFT: Final = "ps/drift"
"""Mean distance that the parameters moved while a gradient was computed from them, ||w - w_base||. With `record:
drift`. Unit: the parameters' own."""
BUFFERS_APART: Final = "ps/buffers_apart"
"""Largest distance of a worker's buffers from their mean before the workers share them, in parts of the norm of the
mean. Only of buffers that training changes, running statistics of normalisation layers excepted. Unit: 1."""
DROPPED: Final = "ps/dropped"
"""Gradients that the rule or the damping dropped so far. Unit: gradients."""
DUPLICATES: Final = "ps/duplicates"
"""Pushes that arrived a second time so far; they are not applied again. Unit: pushes."""

# Runs of peers
PEERS_APART: Final = "peers/consensus_distance"
"""How far peers are from their mean when that is validated: the root of the mean of ||x_i - mean||^2. Unit: the
parameters' own."""
PEERS_APART_RELATIVE: Final = "peers/consensus_relative"
"""The consensus distance in parts of the norm of the mean. Unit: 1."""
PEER_WEIGHT: Final = "peers/smallest_weight"
"""The smallest push-sum weight of a peer, with the exchanges `sgp` and `gossip`; not where all weigh 1. Unit: 1."""
BUSIEST_PEER: Final = "peers/busiest_bytes_per_update"
"""Bytes that the busiest peer has sent for an update. Unit: bytes."""

# Runs of a split model
PARTS_SENT: Final = "parts/bytes_per_update"
"""Bytes that all workers of a split model send each other for an update, between parts: measured in one step of
epochs 0, 1, 2, 4, 8 ... Unit: bytes."""
PARTS_MEMORY: Final = "parts/memory_megabytes"
"""Memory of the worker that holds most of a split model: parameters, gradients, optimizer state and activations, as
tensors alone. Unit: MB."""
PARTS_BUBBLE: Final = "parts/bubble_share"
"""Share of the workers' time in which stages wait while a pipeline fills and drains. Unit: 0 to 1."""
PARTS_UNEVEN: Final = "parts/uneven_share"
"""Share of the workers' time in which they wait for slower workers, or for larger stages. Unit: 0 to 1."""
PARTS_LINK: Final = "parts/link_share"
"""Share of the workers' time in which they wait for what other parts send. Unit: 0 to 1."""

# Compared with one process; of the runs of a comparison, recorded when it is shown
SECONDS_TO_TARGET: Final = "seconds_to_target"
"""Seconds until the run reached the target of its comparison, between two validations. The tag `scalebook.target` has
the target. Not recorded if it missed the target. Unit: s."""
SAMPLES_TO_TARGET: Final = "samples_to_target"
"""Samples until the run reached the target of its comparison. Unit: samples."""
RELATIVE_TIME: Final = "relative_time"
"""The run's seconds to the target, divided by the mean of one process; without a target its seconds per sample. Below
1 is faster. The tag `scalebook.baseline` names the experiment with one process. Unit: 1."""
COMPARED: Final = (SECONDS_TO_TARGET, SAMPLES_TO_TARGET, RELATIVE_TIME)

TOLD: Final = frozenset({STALENESS_MEAN, PEERS_APART})
"""Recorded even if 0 throughout the run, which is information; other measurements of a run are not."""
FOLLOWS: Final[Mapping[str, Sequence[str]]] = {
    UPDATES_PER_SECOND: (SAMPLES_PER_SECOND,),
    PULLED_PER_UPDATE: (PUSHED_PER_UPDATE,),
    DATA_SHARE: (COMPUTE_SHARE, WAIT_SHARE, COMMUNICATE_SHARE),
}
"""Metrics that `completed` computes from the axes and other metrics, of which the first is recorded. Earlier versions
have recorded `perf/data_share`, and not `perf/updates_per_second`."""
UNRECORDED: Final = frozenset({PULLED_PER_UPDATE, DATA_SHARE, STALENESS_SECONDS})
"""Measured, but not among a run's metrics."""

# Gradient noise scale, with `noise_scale: true`
NOISE_SCALE: Final = "noise/scale"
"""The gradient noise scale, B_simple of McCandlish et al. 2018. Unit: samples."""
NOISE_LOW: Final = "noise/scale_low"
"""Lower end of the 95 % interval of the gradient noise scale. Unit: samples."""
NOISE_HIGH: Final = "noise/scale_high"
"""Upper end of the 95 % interval of the gradient noise scale. Unit: samples."""
NOISE_BATCH: Final = "noise/batch_suggested"
"""The batch size of all workers together that the gradient noise scale suggests. Unit: samples."""

# Tests of a config
RATE_STEEPEST: Final = "rates/steepest"
"""Learning rate at which the loss of a range test falls fastest. Unit: 1."""
RATE_LARGEST: Final = "rates/largest"
"""Largest learning rate of a range test at which the config still trains. Unit: 1."""
LARGEST_BATCH: Final = "batch/largest"
"""Largest batch of one worker that fits into memory. Unit: samples."""
LARGEST_GLOBAL: Final = "batch/largest_global"
"""Largest batch of all workers together that fits into memory. Unit: samples."""

# A search's own run, by the number of trials that have ended
SEARCH_BEST: Final = "search/best"
"""Best value of the first objective so far. Unit: the objective's own."""
SEARCH_ENDED: Final = "search/trials"
"""Trials that have ended. Unit: trials."""

# --- names made of others ---------------------------------------------------------------------------------------------

SYSTEM: Final = "system/"
"""What MLflow's system metrics begin with: what a run takes of its machine. Their step is the number of the sample."""
BEST: Final = "best/"
"""Prefix of best values; only metrics that a run logged while validating have them."""
MEASURED: Final = ("perf/", "ps/", "peers/", "parts/", PEAK_MEMORY_MB)
"""Prefixes of metrics that measure the run itself."""
ONCE: Final = (BEST, "final/")
"""Prefixes of metrics of a whole run."""


def best(metric: str) -> str:
    """The name of the run's best value of `metric` over all validations so far."""
    return f"{BEST}{metric}"


def final(metric: str) -> str:
    """The name of the run's last value of `metric`. If the run has a best value of it, this is its latest value in
    MLflow, and not recorded again; `completed` adds it."""
    return f"final/{metric}"


def per_worker(metric: str, worker: int) -> str:
    """The name of one worker's `metric`, as in `workers.jsonl`."""
    return f"worker_{worker}/{metric}"


ROUNDING: Final = 1e-9
"""A share of time that is none."""
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
    if STALENESS_MEAN in values:
        values.setdefault(STALENESS_P95, 0.0)  # not recorded if it was 0 throughout
    rest = 1.0 - sum(values.get(name, 0.0) for name in FOLLOWS[DATA_SHARE])
    if COMPUTE_SHARE in values and rest > ROUNDING:
        values.setdefault(DATA_SHARE, rest)
    for metric in [name for name in values if name.startswith(BEST)]:
        if (validated := metric.removeprefix(BEST)) in values:
            values.setdefault(final(validated), values[validated])
    return values


# --- parameters, beside the config itself, which is flattened into dotted keys ----------------------------------------

VIRTUAL: Final = "virtual"
REAL: Final = "real"
NO_RULE: Final = "none"
UNKNOWN: Final = "unknown"
"""A parameter that its config does not say, as MLflow's charts call it."""
PARAMETERS: Final[Mapping[str, str]] = {
    "strategy": "`single`, `ddp`, `AsyncPS`, `Peers`, `ModelParallel`, or the name of another class.",
    "rule": "The update rule and its modifiers, in words; `none` for strategies without a rule.",
    "workers": "Number of workers, on all nodes together.",
    "batch_per_worker": "Batch size of one worker, in samples; `unknown` if the data set has none.",
    "batch_global": "Batch size of all workers together, in samples; `unknown` if the data set has none.",
    "lr": "Learning rate that is applied (after `lr_scaling`); `unknown` if the config does not set it.",
    "clock": "`virtual` if `seconds` come from a declared clock, otherwise `real`.",
}
"""Every run has each of them."""

# --- tags -------------------------------------------------------------------------------------------------------------

TAG_CELL: Final = "scalebook.cell"
"""Name of the cell."""
TAG_NOTEBOOK: Final = "scalebook.notebook"
"""File name of the notebook."""
TAG_CONFIG_HASH: Final = "scalebook.config_hash"
"""12 hex digits of the config without its seed."""
TAG_MODULES: Final = "scalebook.modules"
"""JSON: file of the person's own code -> digest."""
TAG_SEED: Final = "scalebook.seed"
"""Seed of the run."""
TAG_RANDOM_MADE: Final = "scalebook.random_state_made"
"""Digest of torch's random state after model and data are made. Runs with different seeds have different ones, unless
the model or the data sets a seed itself."""
TAG_RANDOM_TRAINED: Final = "scalebook.random_state_trained"
"""The same in worker 0, at the first training batch."""
TAG_OWN_SEED: Final = "scalebook.own_seed"
"""The seed that the model or the data has set itself, in place of the run's."""
TAG_STATUS: Final = "scalebook.status"
"""`finished`, `failed` or `stopped`; MLflow has no word for the last."""
TAG_FAILURE: Final = "scalebook.failure"
"""Class of the failure."""
TAG_CAUSE: Final = "scalebook.cause"
"""Cause of the failure, in one line: which process, and why."""
TAG_ADVICE: Final = "scalebook.advice"
"""What to do about the failure."""
TAG_FROM_CHECKPOINT: Final = "scalebook.from_checkpoint"
"""Settings with which a resumed run has trained instead of its config's: those of a checkpoint that an earlier version
has written."""
TAG_WORKERS_LOST: Final = "scalebook.workers_lost"
"""Which workers have died while the others went on training: who, when and why, and what was not trained."""
TAG_STRATEGY: Final = "scalebook.strategy"
"""`single`, `ddp`, `AsyncPS`, `Peers`, `ModelParallel`, or the name of another class."""
TAG_RULE: Final = "scalebook.rule"
"""Rule and modifiers in words; under DDP how gradients travel if a codec is used."""
TAG_WORKERS: Final = "scalebook.workers"
"""Number of workers."""
TAG_CLOCK: Final = "scalebook.clock"
"""`virtual` if `seconds` is the time of virtual workers."""
TAG_BATCH_PER_WORKER: Final = "scalebook.batch_per_worker"
"""Batch size of one worker, samples."""
TAG_BATCH_GLOBAL: Final = "scalebook.batch_global"
"""Batch size of all workers together, samples."""
TAG_LR_ASKED: Final = "scalebook.learning_rate"
"""Learning rate as the config says it."""
TAG_LR_SCALED: Final = "scalebook.learning_rate_scaled"
"""Learning rate after `lr_scaling`."""
TAG_MODEL: Final = "scalebook.model"
"""Class of the model."""
TAG_DATA: Final = "scalebook.data"
"""Class of the data."""
TAG_COMMIT: Final = "mlflow.source.git.commit"
"""Git commit of the workspace."""
TAG_UNCOMMITTED: Final = "scalebook.uncommitted"
"""`yes` or `no`: whether files of the workspace differ from the commit."""
TAG_NOTE: Final = "mlflow.note.content"
"""MLflow's Description, of a run and of an experiment; also people's notes."""
TAG_SOURCE: Final = "mlflow.source.name"
"""MLflow's column Source: the notebook, else `scalebook`."""
TAG_SOURCE_TYPE: Final = "mlflow.source.type"
"""MLflow's type of source: `LOCAL`."""
TAG_VERSIONS: Final = "scalebook.versions"
"""JSON: package -> version."""
TAG_HOST: Final = "scalebook.host"
"""Host name of the machine that submitted the run."""
TAG_DEVICES: Final = "scalebook.devices"
"""Devices that the run has used."""
TAG_MACHINE: Final = "scalebook.machine"
"""Cores and GPUs of the machine that the run has used."""
TAG_TEST: Final = "scalebook.test"
"""`plan`, `learning rates` or `largest batch`: the run only tests a config."""
TEST_PLAN: Final = "plan"
TAG_TARGET: Final = "scalebook.target"
"""Metric and target of the comparison to which `seconds_to_target` and `samples_to_target` belong: `val/loss 0.3`."""
TAG_BASELINE: Final = "scalebook.baseline"
"""The experiment with one process that `relative_time` is relative to."""
TAG_GOALS: Final = "scalebook.better"
"""JSON: metric -> `min` or `max`, as a person says it; it comes before `scalebook.directions`."""
TAG_DIRECTIONS: Final = "scalebook.directions"
"""JSON: metric -> `min` or `max`, as the config or torchmetrics says it."""
TAG_NOISE: Final = "scalebook.noise_scale"
"""The batch size that the gradient noise scale suggests, in a sentence."""
TAG_OWN: Final = "scalebook.own_metrics"
"""Metrics of a run under DDP that are not of all workers' data together."""
TAG_CLAIMS: Final = "scalebook.claims"
"""Names of the claims about the run's cell when it was submitted."""
TAG_CLAIM: Final = "scalebook.claim."
"""With a number: JSON, what one of these claims said then."""
TAG_LOOK: Final = "scalebook.look."
"""With a digest: JSON, the runs by which a claim about the run's cell was judged."""
LONGEST_TAG: Final = 8000
"""Characters, in MLflow; longer ones it cuts."""
TAG_SUBMISSION: Final = "scalebook.submission"
"""Names the file of the submission that began the run, while the run has no folder yet."""
TAG_PARENT: Final = "mlflow.parentRunId"
"""Of a trial: the run of its search."""
TAG_SEARCH: Final = "scalebook.search"
"""Of a search's own run: the name of the search."""
TAG_BEST_TRIAL: Final = "scalebook.best_trial"
"""Of a search's own run: number of the trial with the best first objective."""
TAG_TRIAL: Final = "scalebook.trial"
"""Number of the trial within its search."""
TAG_POINT: Final = "scalebook.point"
"""What the trial tries, in words."""
TAG_TRIAL_STATE: Final = "scalebook.trial_state"
"""State of the trial as the study has it: `finished`, `pruned`, `infeasible`, `failed` or `interrupted`."""

# --- artifacts --------------------------------------------------------------------------------------------------------

CONFIG_ARTIFACT: Final = "config.yaml"
"""The whole config of the run."""
MODULES: Final = "modules"
"""Folder with the person's own modules that the run used."""
STALENESS_JSON: Final = "staleness.json"
"""Histogram of the staleness: `{"counts": [[per bin] per worker]}`. Bin i has staleness i, the last one that or
more."""
WORKERS_JSONL: Final = "workers.jsonl"
"""Figures of single workers: a line per worker and point."""
PUSHES_JSON: Final = "pushes.json"
"""Pushes, drops, duplicates and ages of gradients by worker and shard, and each worker's seconds."""
PARTS_JSON: Final = "parts.json"
"""Of a split model: its layers by worker, each worker's memory, bytes that it sends and shares of time that it waits,
and bytes by collective and layer."""
TIMINGS_JSON: Final = "timings.json"
"""Seconds of gradients by worker, and of a push at a shard; the clock of a run with virtual workers can use them."""
STALENESS_PICTURE: Final = "staleness.png"
"""The histogram of the staleness as a picture."""
RATES_JSON: Final = "rates.json"
"""Of a learning-rate range test: rates, losses, whether it diverged, and its suggestion."""
RATES_PICTURE: Final = "rates.png"
"""The range test as a picture."""
BATCH_JSON: Final = "batch.json"
"""Of a try of a batch size: training samples, seconds per step, memory."""
BATCHES_JSON: Final = "batches.json"
"""Of a largest-batch test: every try."""
SAMPLES_PICTURE: Final = "samples.png"
"""Images that the model generates."""

SPOOL: Final = "mlflow"
"""Folder of a job on another machine: what it tells MLflow, on its way to the store."""

# --- what is said of names


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
            "Virtual workers: one process simulates all of them. Seconds, and rates per second, come from the declared "
            "clock, not from this machine."
        )
    return (
        "This includes virtual and measured runs. For virtual workers, seconds and rates per second come from the "
        "declared clock."
    )


RECORDABLE: Final = re.compile(r"[/\w.\- :]{1,250}")
"""Metric names that MLflow accepts; they must be valid as file names."""
RECORDABLE_WORDS: Final = (
    "MLflow accepts only letters, digits, spaces and _ - . : / in names, which must also be valid file names"
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
