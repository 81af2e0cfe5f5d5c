"""SGD with a parameter server under Lightning: the rule decides how the workers' gradients are applied, and whether a
worker waits for others."""

from scalebook.training.engine.rules import (
    ClockSettings,
    Codec,
    CodecName,
    CountOrNone,
    Damping,
    DampingName,
    HostName,
    Limits,
    Local,
    LocalName,
    NonNegativeInt,
    PositiveInt,
    Rule,
    RuleName,
    Settings,
    WorkerRange,
    make_codec,
    make_damping,
    make_local,
    make_rule,
    run_limits,
)
from scalebook.training.lightning.arguments import (
    AsyncArguments,
    RecordName,
    read_clock_settings,
    read_object,
    read_workers,
)
from scalebook.training.lightning.async_ps.engine_strategy import EngineStrategy
from scalebook.training.lightning.buffers import BufferPolicy


class AsyncPS(EngineStrategy):
    """Workers share parameters and optimizer state through a parameter server, by one of several rules.

    Rule, damping, codecs, `local`, `clock` and `workers` may also be mappings, as in a config.

    Args:
        rule: How the server applies gradients. `async`: each gradient at once (Downpour SGD). `bounded`: the same, but
            no worker runs far ahead of the slowest. `sync`: averages one gradient per worker. `softsync`: averages any
            few gradients. If you give only a name, the rule's defaults apply.
        damping: How to treat stale gradients. `none`: no change. `inverse`: divide the learning rate by the staleness.
            `drop_above`: drop gradients staler than a limit. `delay_compensation`: correct them.
        workers: Number of worker processes per machine. If there are more workers than devices, workers share devices.
            Null: one per device. `{min: 2, max: 8}`: one per device, with limits for all machines together; machines
            may join and leave during training (not under `sync`).
        warmup_updates: Number of updates at the start that only worker 0 makes.
        shards: Number of parts into which the parameters are divided, each with its own lock or server.
        host: Where shards are kept and gradients applied. `inline`: in shared memory; the worker that pushes applies
            its gradient. `process`: in one server process per shard. `overlap`: as `process`, but a worker computes
            while the server applies its last push, so the worker's parameters are one push older. `virtual`: one
            process simulates all workers; each gradient is computed from the version that its worker would hold, in the
            order that `clock` determines, and `seconds` are those of the clock.
        buffers: How workers share buffers that training changes (codebooks, centroids, queues). `averaged`: each push
            sets them to the mean of all workers, but integer buffers, and the other buffers of their module, come from
            worker 0. `of_worker_0`: all workers use worker 0's, as under DDP. `per_worker`: each worker keeps its own,
            and validation and checkpoints use worker 0's. `frozen`: normalisation layers never change their buffers.
            Null: `of_worker_0` under the rule `sync`, else `averaged`. Validation and checkpoints average the running
            statistics of normalisation layers, unless you set `of_worker_0` or `per_worker`.
        limits: `restarts`: how often dead workers restart in one run; after that, training continues without a worker
            that dies. Worker 0 never restarts: its death ends the run. `deadline_s`: seconds after which waiting for
            another process fails.
        record: What to record of each update, in addition to the metrics. `drift`: how far the parameters moved while
            the update's gradients were computed (the metric `ps/drift`). `updates`: which gradients made which version,
            in the folder `trace/` of the run.
        clock: How long everything takes for virtual workers.
        push_codec: Compression of gradients. `fp32`: none. `bf16`, `fp16`: half the bytes; `int8`: a quarter; `sign`:
            1/32; `qsgd`: a few random levels; `topk`, `randomk`: a share of the values; `powersgd`: low-rank matrices.
            In shared memory (hosts `inline` and `process`), a codec costs time and saves none, but shows how training
            behaves with fewer bytes. Links of virtual workers carry the compressed bytes.
        pull_codec: Compression of parameters. `fp32`, `bf16` and `fp16` send whole parameters. Any other codec sends
            the difference from the worker's last parameters, and the next pull also sends what this one omitted.
            Workers compute with the decoded values; the shards keep exact values, which validation and checkpoints use.
        local: When workers communicate. `none`: after each gradient. `downpour`: a worker pushes the sum of several
            gradients, and makes plain SGD steps in between. With the others, each worker makes steps with its own
            optimizer on its own parameters, and an update combines several steps. `local_sgd`: averages parameters.
            `diloco`: adds momentum to these averages. `elastic`: workers keep their own parameters, and workers and
            shards pull each other closer. `significance`: pushes only after the parameters have moved far enough.
            Updates, `max_steps` and staleness count what the shards apply; learning rate schedules count a worker's own
            steps. Validation and checkpoints use the shards' parameters. A resumed run starts from these parameters,
            with worker 0's optimizer state. A worker that dies loses its steps since its last push.
        tls: Whether to encrypt traffic between machines (`trainer.num_nodes`). Loopback traffic is never encrypted.
            Without encryption, workers must still prove that they have the run's key.
    """

    strategy_name = "async_ps"

    def __init__(
        self,
        rule: RuleName | Rule = "async",
        damping: DampingName | Damping = "none",
        workers: CountOrNone | WorkerRange = None,
        warmup_updates: NonNegativeInt = 0,
        shards: PositiveInt = 1,
        host: HostName = "inline",
        buffers: BufferPolicy | None = None,
        limits: Limits = run_limits.USUAL,
        record: RecordName = "nothing",
        clock: ClockSettings | None = None,
        push_codec: CodecName | Codec = "fp32",
        pull_codec: CodecName | Codec = "fp32",
        local: LocalName | Local = "none",
        tls: bool = True,
    ) -> None:
        super().__init__(
            lambda: AsyncArguments(
                server=Settings(
                    rule=make_rule(read_object(rule, RuleName | Rule, Rule.ARGUMENT)),
                    damping=make_damping(read_object(damping, DampingName | Damping, Damping.ARGUMENT)),
                    warmup_updates=warmup_updates,
                    shards=shards,
                    host=host,
                    drift=record == "drift",
                    clock=read_clock_settings(clock),
                    push_codec=make_codec(read_object(push_codec, CodecName | Codec, Codec.ARGUMENT)),
                    pull_codec=make_codec(read_object(pull_codec, CodecName | Codec, "pull_codec"), "pull_codec"),
                    local=make_local(read_object(local, LocalName | Local, Local.ARGUMENT)),
                ),
                workers=read_workers(workers),
                buffers=buffers,
                limits=run_limits.read_limits(limits),
                record=record,
                tls=tls,
            )
        )
