"""SGD with a parameter server under Lightning: connects its Trainer with `scalebook.training.engine`.

Each worker runs Lightning's own loops on its share of the data; the rule decides how its gradients are applied, and
whether it waits for others. Worker 0 also validates, logs and writes checkpoints, from a consistent snapshot.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch.nn import Module
from torch.optim import Optimizer
from typing_extensions import override

from scalebook.training.base.system import require_linux
from scalebook.training.engine.rules.bounds import CountOrNone, NonNegativeInt, PositiveInt
from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.rules.codecs import Codec, CodecName, make_codec
from scalebook.training.engine.rules.contradictions import ARGUMENTS
from scalebook.training.engine.rules.damping import Damping, DampingName, make_damping
from scalebook.training.engine.rules.local_steps import Local, LocalName, make_local
from scalebook.training.engine.rules.run_limits import USUAL, Limits, WorkerRange, read_limits
from scalebook.training.engine.rules.settings import HostName, Settings
from scalebook.training.engine.rules.update_rules import Rule, RuleName, make_rule
from scalebook.training.lightning.arguments import (
    AsyncArguments,
    RecordName,
    read_clock_settings,
    read_object,
    read_workers,
)
from scalebook.training.lightning.async_ps.async_run import AsyncRun
from scalebook.training.lightning.async_ps.first_hooks import stand_first
from scalebook.training.lightning.async_ps.refusals import refuse_optimizers
from scalebook.training.lightning.async_ps.schedules import updates_estimated
from scalebook.training.lightning.async_ps.session import LAST_MEETING, MEETINGS, ServerSession, Session
from scalebook.training.lightning.async_ps.worker_hooks import IndependentWorkers
from scalebook.training.lightning.async_ps.worker_session import WorkerSession
from scalebook.training.lightning.buffers import BufferPolicy
from scalebook.training.lightning.package import ClusterEnvironment, LightningModule, Trainer
from scalebook.training.lightning.portable_checkpoint import for_workers
from scalebook.training.lightning.processes.cuda_fork import count_gpus_apart
from scalebook.training.lightning.processes.strategy_launcher import ForkLauncher, ours, repr_for_trainers
from scalebook.training.lightning.run_figures import RunFigures

PULL: Final = f"{ARGUMENTS}.pull_codec"


class AsyncPS(IndependentWorkers):
    """Workers share parameters and optimizer state through a parameter server, by one of several rules.

    Rule, damping, codecs, `local`, `clock` and `workers` may also be mappings, as a config writes them.

    Args:
        rule: How the server applies gradients. `async`: each at once (Downpour SGD). `bounded`: the same, but no worker
            runs far ahead of the slowest. `sync`: averages one gradient per worker. `softsync`: averages any few. A
            bare name means the rule's defaults.
        damping: How to treat stale gradients. `none`: no change. `inverse`: divide the learning rate by the staleness.
            `drop_above`: drop gradients staler than a limit. `delay_compensation`: correct them.
        workers: Worker processes per machine. More workers than devices share them. Null: one per device. `{min: 2,
            max: 8}`: one per device, with limits over all machines together; machines may join and leave during
            training (not under `sync`).
        warmup_updates: Updates at the start that worker 0 makes alone.
        shards: Parts of the parameters, each with its own lock or server.
        host: Where shards live. `inline`: in shared memory; the pushing worker applies its gradient. `process`: a
            server process per shard. `overlap`: the same, and a worker computes while the server applies its last push;
            its parameters are then one push older. `virtual`: one process simulates all workers; each gradient is
            computed from the version that its worker would hold, in the order that `clock` gives; `seconds` are those
            of the clock.
        buffers: How workers share buffers that training changes (codebooks, centroids, queues). `averaged`: each push
            brings them to the mean of all workers; integer buffers, and the other buffers of their module, are worker
            0's. `of_worker_0`: all take worker 0's, as under DDP. `per_worker`: each keeps its own; validation and
            checkpoints use worker 0's. `frozen`: normalisation layers never change theirs. Null: `of_worker_0` under
            the rule `sync`, else `averaged`. Validation and checkpoints average the running statistics of normalisation
            layers, unless `of_worker_0` or `per_worker` is written.
        limits: `restarts`: how often a dead worker restarts in one run; after that, training continues without it.
            Worker 0 never restarts: its death ends the run. `deadline_s`: seconds after which a wait for another
            process fails.
        record: What to record of each update, beside the metrics. `drift`: how far the parameters moved while its
            gradients were computed (the metric `ps/drift`). `updates`: all of it, for replay
            (`scalebook.training.engine.replay`).
        clock: How long everything takes for virtual workers.
        push_codec: Compression of gradients. `fp32`: none. `bf16`, `fp16`: half the bytes; `int8`: a quarter; `sign`:
            1/32; `qsgd`: few random levels; `topk`, `randomk`: a share of the values; `powersgd`: low-rank matrices. In
            shared memory (hosts `inline` and `process`) a codec costs time and saves none; it shows what fewer bytes do
            to training. Links of virtual workers carry the fewer bytes.
        pull_codec: Compression of parameters. `fp32`, `bf16` and `fp16` carry whole parameters; any other codec carries
            their difference from the worker's last ones, and the next pull makes up for what it omits. Workers compute
            with the decoded values; the shards keep exact ones, which validation and checkpoints use.
        local: When workers communicate. `none`: after each gradient. `downpour`: pushes the sum of several gradients,
            and makes plain SGD steps in between. Otherwise each worker makes steps of its own optimizer
            on its own parameters, and an update combines several steps. `local_sgd`: averages parameters.
            `diloco`: adds momentum over these averages. `elastic`: workers keep their own parameters; they and the
            shards pull each other. `significance`: pushes only after moving far enough. Updates, and with them
            `max_steps` and staleness, count what the shards apply; learning rate schedules count a worker's own steps.
            Validation and checkpoints use the shards' parameters. A resumed run starts from them, with worker 0's
            optimizer state. A worker that dies loses its steps since its last push.
        tls: Whether to encrypt traffic between machines (`trainer.num_nodes`); loopback traffic is never encrypted.
            Without it, workers must still prove that they have the run's key.
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
        limits: Limits = USUAL,
        record: RecordName = "nothing",
        clock: ClockSettings | None = None,
        push_codec: CodecName | Codec = "fp32",
        pull_codec: CodecName | Codec = "fp32",
        local: LocalName | Local = "none",
        tls: bool = True,
    ) -> None:
        require_linux()
        count_gpus_apart()
        super().__init__()
        self.arguments = AsyncArguments(
            server=Settings(
                rule=make_rule(read_object(rule, RuleName | Rule, Rule.KEY)),
                damping=make_damping(read_object(damping, DampingName | Damping, Damping.KEY)),
                warmup_updates=warmup_updates,
                shards=shards,
                host=host,
                drift=record == "drift",
                clock=read_clock_settings(clock),
                push_codec=make_codec(read_object(push_codec, CodecName | Codec, Codec.KEY)),
                pull_codec=make_codec(read_object(pull_codec, CodecName | Codec, PULL), PULL),
                local=make_local(read_object(local, LocalName | Local, Local.KEY)),
            ),
            workers=read_workers(workers),
            buffers=buffers,
            limits=read_limits(limits),
            record=record,
            tls=tls,
        )
        self._loaded: Mapping[str, Any] = {}  # what the last checkpoint that was read says for us alone
        self._run = AsyncRun(self.arguments)

    @override
    def __repr__(self) -> str:
        return repr_for_trainers(self)

    @property
    @override
    def session(self) -> Session:
        return self._run.session

    @property
    def figures(self) -> RunFigures:
        """The run's measurements so far."""
        return self.session.figures

    @property
    def started_with(self) -> dict[str, str]:
        """Digests of what must be the same on all nodes, by key; to be filled before a fit."""
        return self._run.started_with

    # --- who is there --------------------------------------------------------------------------------------------

    @property
    def cluster_environment(self) -> ClusterEnvironment | None:
        return self._environment

    @cluster_environment.setter
    def cluster_environment(self, environment: ClusterEnvironment | None) -> None:
        self._environment = ours(environment)

    @property
    def workers(self) -> int:
        """Workers of a fit, on all nodes, simulated ones included."""
        return self.num_nodes * self._on_each

    @property
    def _on_each(self) -> int:
        """Of a fit, on each machine."""
        return self.arguments.on_each(super().num_processes)

    @property
    @override
    def num_processes(self) -> int:
        """Worker processes of the present run; before it starts, of a fit."""
        return self.session.processes or (1 if self.arguments.is_simulated else self.workers)

    @property
    @override
    def local_rank(self) -> int:
        return self.session.rank - self.node_rank * self._on_each

    @property
    @override
    def root_device(self) -> torch.device:
        return torch.device("cpu") if self.session.on_cpu else super().root_device

    # --- set-up and end ------------------------------------------------------------------------------------------

    @override
    def _configure_launcher(self) -> None:
        self._run.configure(self.num_nodes, self._on_each)
        self._launcher = ForkLauncher(self._run)

    @override
    def setup_environment(self) -> None:
        if not self.session.on_cpu:
            super().setup_environment()
        self.session.prepare(self._trainer)

    @override
    def setup(self, trainer: Trainer) -> None:
        if isinstance(self.session, ServerSession):  # the optimizers are set up as in a worker, and then it serves
            assert self.model is not None
            self.model = self.precision_plugin.convert_module(self.model)
            self.setup_optimizers(trainer)
            refuse_optimizers(self.optimizers)
            self.session.serve(self.optimizers, trainer.lightning_module)
        super().setup(trainer)
        self._run.session = self.session.set_up(trainer, self.optimizers, self.root_device)

    @override
    def setup_optimizers(self, trainer: Trainer) -> None:
        with updates_estimated(trainer, self.arguments.server, self.num_processes, self.workers):
            super().setup_optimizers(trainer)

    @override
    def barrier(self, name: str | None = None) -> None:
        """Meet the others. The strategy's own callbacks are added after the last barrier before training, so that
        `on_fit_start` sees only the user's."""
        if name not in MEETINGS:
            super().barrier(name)
            return
        self.session.synchronize(name)
        if name == LAST_MEETING and isinstance(self.session, WorkerSession):
            stand_first(self._trainer, self.session)

    @override
    def process_dataloader(self, dataloader: object) -> object:
        return self.session.process_dataloader(self._trainer, dataloader)

    @override
    def on_train_start(self) -> None:
        self.session.train_start()

    @override
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self.session.batch_start()

    @override
    def on_train_end(self) -> None:
        self.session.train_end()

    @override
    def teardown(self) -> None:
        self._run.session = self.session.after_training()
        super().teardown()
        self.session.take_rank()  # Lightning's environment has forgotten it, and asks the loaders once more

    # --- training ------------------------------------------------------------------------------------------------

    @override
    def optimizer_step(
        self,
        optimizer: Optimizer,
        closure: Callable[[], Any],
        model: LightningModule | Module | None = None,
        **kwargs: Any,
    ) -> Any:
        """Compute the gradient, push it, pull the newest parameters: the optimizer's `step` is a push."""
        session = self.session

        def computed() -> Any:
            output = closure()
            session.computed()
            return output

        output = super().optimizer_step(optimizer, computed, model, **kwargs)
        session.stepped(optimizer)
        return output

    @override
    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """Validate a batch, and give a sign of life, which restarts the deadline of workers that a rule lets wait."""
        output = super().validation_step(*args, **kwargs)
        self.session.sign_of_life()
        return output

    def version(self, optimizer: Optimizer) -> int:
        """See `CountsUpdates`."""
        return self.session.version(optimizer)

    def gradients_averaged(self) -> int:
        """See `CountsUpdates`."""
        return self.arguments.server.averaged_in_step(self.workers)

    def gradients_computed(self) -> int:
        """See `CountsUpdates`."""
        return self.arguments.server.computed_in_step(self.workers)

    # --- checkpoints ---------------------------------------------------------------------------------------------

    @override
    def lightning_module_state_dict(self) -> dict[str, Any]:
        return self.session.weights(super().lightning_module_state_dict)

    @override
    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        return self.session.optimizer_state(optimizer, lambda: super(AsyncPS, self).optimizer_state(optimizer))

    @override
    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any | None = None) -> None:
        super().save_checkpoint(self.session.checkpoint(checkpoint), filepath, storage_options)
        self.session.note_checkpoint(filepath)

    @override
    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        checkpoint, self._loaded = for_workers(super().load_checkpoint(checkpoint_path, weights_only))
        return checkpoint

    @override
    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        own_state, self._loaded = self._loaded, {}  # it may be large
        self.session.resume(checkpoint, own_state, lambda: super(AsyncPS, self).load_optimizer_state_dict(checkpoint))
