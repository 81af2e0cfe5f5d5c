"""SGD with a parameter server under Lightning: the glue between its Trainer and `scalebook.training.ps`.

Each worker runs Lightning's own loops on its share of the data; the rule says what becomes of its gradients, and
whether it waits for others. Worker 0 also validates, logs and writes checkpoints, from a consistent snapshot.
"""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.nn import Module
from torch.optim import Optimizer
from typing_extensions import override

from scalebook.training.ps.policy.bounds import CountOrNone, NonNegativeInt, PositiveFloat, PositiveInt
from scalebook.training.ps.policy.clock import ClockSettings
from scalebook.training.ps.policy.codecs import CodecName, make_codec
from scalebook.training.ps.policy.contradictions import ARGUMENTS
from scalebook.training.ps.policy.damping import Damping, DampingName, make_damping
from scalebook.training.ps.policy.frames import Codec
from scalebook.training.ps.policy.local import Local, LocalName, make_local
from scalebook.training.ps.policy.rules import Rule, RuleName, make_rule
from scalebook.training.ps.policy.settings import HostName, Settings
from scalebook.training.ps.policy.worker_range import WorkerRange
from scalebook.training.ps.worker.end import Phase, Pushed, WorkerEnd
from scalebook.training.strategies.applied_step import Pushing
from scalebook.training.strategies.async_arguments import AsyncArguments
from scalebook.training.strategies.bar_totals import bar_totals
from scalebook.training.strategies.buffers import BufferPolicy, Buffers
from scalebook.training.strategies.cuda import count_gpus_apart
from scalebook.training.strategies.first import First, stand_first
from scalebook.training.strategies.forking import LAST_MEETING
from scalebook.training.strategies.launcher import take_rank
from scalebook.training.strategies.lightning import LightningModule, Trainer, TrainerStatus
from scalebook.training.strategies.metrics import share_metrics
from scalebook.training.strategies.places import Stage, set_apart
from scalebook.training.strategies.playing import Playing
from scalebook.training.strategies.refused import refuse_model, refuse_optimizers
from scalebook.training.strategies.schedules import Schedules, updates_estimated
from scalebook.training.strategies.shared_measures import SharedMeasures
from scalebook.training.strategies.steps import Steps
from scalebook.training.strategies.worker_role import train_only
from scalebook.training.strategies.written import read_clock_settings, read_object, read_workers
from scalebook.training.system import require_linux

PULL: Final = f"{ARGUMENTS}.pull_codec"


class AsyncPS(SharedMeasures, Playing):
    """Workers share parameters and optimizer state through a parameter server, by one of several rules.

    Rule, damping, codecs, `local`, `clock` and `workers` may also be mappings, as a config writes them.

    Args:
        rule: How the server applies gradients. `async`: each at once (Downpour SGD). `bounded`: the same, but no worker
            runs far ahead of the slowest. `sync`: averages one gradient per worker. `softsync`: averages any few. A
            bare name means the rule's defaults.
        damping: How to treat stale gradients. `none`: no change. `inverse`: divide the learning rate by the staleness.
            `drop_above`: drop gradients staler than a limit. `delay_compensation`: correct them.
        workers: Worker processes per machine. More workers than devices share them. None: one per device. `{min: 2,
            max: 8}`: one per device, with limits over all machines together; machines may join and leave during
            training (not under `sync`).
        warmup_updates: Updates at the start that worker 0 makes alone.
        shards: Parts of the parameters, each with its own lock or server.
        host: Where shards live. `inline`: in shared memory; the pushing worker applies its gradient. `process`: a
            server process per shard. `virtual`: one process simulates all workers; each gradient is computed from the
            version that its worker would hold, in the order that `clock` gives; `seconds` are those of the clock.
        overlap: Whether a worker computes while the server applies its last push (host `process`). Its parameters are
            then one push older.
        buffers: How workers share buffers that training changes (codebooks, centroids, queues). `averaged`: each push
            brings them to the mean of all workers; integer buffers, and the other buffers of their module, are worker
            0's. `of_worker_0`: all take worker 0's, as under DDP. `per_worker`: each keeps its own; validation and
            checkpoints use worker 0's. `frozen`: normalisation layers never change theirs. None: `of_worker_0` under
            the rule `sync`, else `averaged`. Validation and checkpoints average the running statistics of normalisation
            layers, unless `of_worker_0` or `per_worker` is written.
        restarts: How often a dead worker restarts in one run. After that, training continues without it. Worker 0 never
            restarts: its death ends the run.
        trace: Whether to record every update for replay (`scalebook.training.ps.replay`).
        norms: Whether to measure how far the parameters moved under each gradient.
        deadline_s: Seconds after which a wait for another process fails.
        clock: How long everything takes for virtual workers.
        push_codec: Compression of gradients. `fp32`: none. `bf16`, `fp16`: half the bytes; `int8`: a quarter; `sign`:
            1/32; `qsgd`: few random levels; `topk`, `randomk`: a share of the values; `powersgd`: low-rank matrices. In
            shared memory (hosts `inline` and `process`) a codec costs time and saves none; it shows what fewer bytes do
            to training. Links of virtual workers carry the fewer bytes.
        pull_codec: Compression of parameters: `fp32`, `bf16`, `fp16` or `int8`. Workers compute with the decoded
            values; the shards keep exact ones, which validation and checkpoints use.
        pull_delta: Whether to send only the difference to the worker's last parameters, by any lossy codec. The next
            pull makes up for what one omits.
        local: When workers communicate. `none`: after each gradient. `downpour`: pushes the sum of several gradients,
            and makes plain SGD steps in between. Otherwise each worker makes steps of its own optimizer
            on its own parameters, and an update combines several steps. `local_sgd`: averages parameters.
            `diloco`: adds momentum over these averages. `elastic`: workers keep their own parameters; they and the
            shards pull each other. `significance`: pushes only after moving far enough. Updates, and with them
            `max_steps` and staleness, count what the shards apply; learning rate schedules count a worker's own steps.
            Validation and checkpoints use the shards' parameters. A resumed run starts from them, with worker 0's
            optimizer state. A worker that dies loses its steps since its last push.
        threads: CPU threads per worker. None: as many as torch is set to use (OMP_NUM_THREADS), else an equal part of
            the cores. In a config, use the top-level key `threads` instead.
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
        overlap: bool = False,
        buffers: BufferPolicy | None = None,
        restarts: NonNegativeInt = 0,
        trace: bool = False,
        norms: bool = False,
        deadline_s: PositiveFloat = 600.0,
        clock: ClockSettings | None = None,
        push_codec: CodecName | Codec = "fp32",
        pull_codec: CodecName | Codec = "fp32",
        pull_delta: bool = False,
        local: LocalName | Local = "none",
        threads: CountOrNone = None,
        tls: bool = True,
    ) -> None:
        require_linux()
        count_gpus_apart()
        super().__init__(
            AsyncArguments(
                server=Settings(
                    rule=make_rule(read_object(rule, RuleName | Rule, Rule.KEY)),
                    damping=make_damping(read_object(damping, DampingName | Damping, Damping.KEY)),
                    warmup_updates=warmup_updates,
                    shards=shards,
                    host=host,
                    overlap=overlap,
                    norms=norms,
                    clock=read_clock_settings(clock),
                    push_codec=make_codec(read_object(push_codec, CodecName | Codec, Codec.KEY)),
                    pull_codec=make_codec(read_object(pull_codec, CodecName | Codec, PULL), PULL),
                    pull_delta=pull_delta,
                    local=make_local(read_object(local, LocalName | Local, Local.KEY)),
                ),
                workers=read_workers(workers),
                buffers=buffers,
                restarts=restarts,
                trace=trace,
                deadline_s=deadline_s,
                threads=threads,
                tls=tls,
            )
        )
        self._pushing: dict[int, Pushing] = {}  # by the optimizer's id

    # --- set-up and end ------------------------------------------------------------------------------------------

    @override
    def setup_environment(self) -> None:
        if self._server is None:
            super().setup_environment()
            if self._worker > 0:
                train_only(self._trainer)
        if self._collectives is not None:
            set_apart(self._trainer, self._collectives.places)

    @override
    def setup(self, trainer: Trainer) -> None:
        if self._server is not None:
            self._serve(trainer)
        super().setup(trainer)
        if self._end is not None:
            refuse_model(trainer.lightning_module, self._end.settings)  # what configure_model has made, too
            refuse_optimizers(self.optimizers)
            self._make_buffers(self._end)
            self.play_if_virtual(trainer)
            self._joined = self._end.join(self.optimizers, self.announce, trainer.lightning_module)
            self._begin_anew()
            if self._buffers is not None:
                self._buffers.share(None if self._playing else self._end.meetings)
            self._joined.name_parameters(trainer.lightning_module.named_parameters())
            self._pushing = {id(client.optimizer): Pushing(client.optimizer, client) for client in self._joined.clients}

    @override
    def barrier(self, name: str | None = None) -> None:
        """After the last before training ours are among the callbacks: `on_fit_start` sees the user's alone."""
        super().barrier(name)
        if name == LAST_MEETING and self._joined is not None:
            server = self.arguments.server
            come = self.workers > 1 or server.overlap or server.pushes_rarely  # updates, between steps
            totals = bar_totals(self._trainer, server.computed(self.workers), self.num_processes)
            stand_first(self._trainer, [First(self, come and self._worker == 0), *totals])

    @override
    def setup_optimizers(self, trainer: Trainer) -> None:
        with updates_estimated(trainer, self.arguments.server, self.num_processes, self.workers):
            super().setup_optimizers(trainer)

    def _make_buffers(self, end: WorkerEnd) -> None:
        policy, synchronous = self.arguments.buffers, end.settings.rule.synchronous
        model = self._trainer.lightning_module
        self._buffers = Buffers(model, policy, synchronous, self._worker, self.workers, end.rows)
        if self._worker == 0:
            self._buffers.allocate()

    @override
    def process_dataloader(self, dataloader: object) -> object:
        if self._data is None or not self._trainer.training:
            return dataloader
        return self._data.process(self._trainer, dataloader)

    @override
    def on_train_start(self) -> None:
        assert self._joined is not None
        assert self._buffers is not None
        trainer = self._trainer
        if self._worker > 0:  # its own dropout; worker 0 draws as a single process would
            torch.manual_seed(torch.initial_seed() + self._worker)
        self._buffers.freeze()
        self._buffers.note()
        self._own_data.start(trainer, self._position)
        resumed = self._resumed or [0] * len(self.optimizers)
        if self.workers > 1 and trainer.lightning_module.automatic_optimization:
            self._schedules = Schedules(
                trainer.lightning_module, self.lr_scheduler_configs, self._worker, self._own_end.signals
            )
            begun = self._resumed_steps or resumed
            self._schedules.start({id(one): steps for one, steps in zip(self.optimizers, begun, strict=True)})
            self.lr_scheduler_configs = self._schedules.mine()
        self._joined.start()
        self.go_on_if_virtual()
        meetings = self._own_end.meetings
        if self._collectives is not None:
            share_metrics(trainer.lightning_module, lambda: self._meeting(is_metric=True))
            self._collectives.places.stage = Stage.TRAINING
            if self._worker > 0 and self.arguments.server.warmup_updates > 0:
                meetings.enter(Phase.HELD_BACK)
        self._joined.begin()
        meetings.enter(Phase.TRAINING)
        self._snapshot, self._has_begun = None, True
        self._steps = Steps(trainer, self._versions(), resumed, alone=self.workers == 1)
        self._follow_schedules()

    @override
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        super().on_train_batch_start(batch, batch_idx)
        if self._steps is not None:
            self._steps.batch_begins()

    def begin_epoch(self) -> None:
        """Where workers make each update together none begins an epoch before the others: else the last round of an
        uneven epoch would be one of two epochs, and with several optimizers their steps would come in another order
        than the others'. Who stops has said so by then, and nobody begins: StopIteration, which Lightning's loop takes
        for its end."""
        server = self.arguments.server
        several = len(self.optimizers) > 1 and server.rule.synchronous
        if self._collectives is None or not (several or server.meets_after_epochs(self.workers)):
            return
        epochs: Any = self._trainer.fit_loop.epoch_progress.current  # Lightning types it too widely
        if epochs.ready > 1:
            self._collectives.barrier("the start of an epoch")
            if self._own_end.is_over():
                raise StopIteration

    def end_epoch(self) -> None:
        """All workers sum up what the epoch's steps have logged. First of all hooks: any of them may read it."""
        if self._collectives is not None:
            self._collectives.sum_up_epoch(self._trainer)

    def end_training(self) -> None:
        """Finish; then worker 0 has the final parameters. First of all hooks: others may save or change them."""
        assert self._joined is not None
        if self._trainer.should_stop:  # it may have been set after this worker's last push
            self._own_end.signals.ask_to_stop()
        self._joined.push_rest()
        self._own_data.end()
        self._joined.finish()
        if self._is_first_here:
            if not self._has_all:
                self._joined.settle("after its last step")
                self._wait_for_others()
                self._snapshot = None
            self.take_snapshot()
            self._show_mean()

    @override
    def on_train_end(self) -> None:
        self._own_end.meetings.enter(Phase.GONE)
        if self._collectives is not None:
            self._collectives.places.stage = Stage.AFTER

    @override
    def teardown(self) -> None:
        if self._joined is not None:
            if self._trainer.state.status == TrainerStatus.RUNNING:  # not after an exception: nobody waits for it then
                self._joined.finish()
                if self._is_first_here:
                    self.have_snapshot()  # there is none where Lightning saw nothing to do: no epoch, or no batch
            for pushing in self._pushing.values():
                pushing.end()
            self._pushing = {}
            if self._schedules is not None:
                self._schedules.end()
            self._joined.detach()
            self._leave_data()
            self._joined = self._schedules = self._buffers = None
        super().teardown()
        if self._end is not None:  # Lightning's environment has forgotten it, and asks the loaders once more
            take_rank(self._worker, self.num_processes, self._on_each)

    @override
    def __getstate__(self) -> dict[str, Any]:
        """Of a copy or a pickle: without what belongs to this process of this run."""
        ends = {"_launch", "_spread", "_aside", "_figures", "_end", "_playing", "_server", "_data"}
        shared = {*ends, "_joined", "_schedules", "_buffers", "_snapshot"}  # None in every new one
        kept = {name: value for name, value in super().__getstate__().items() if name not in shared}
        return {**kept, "_deaths": None, "_collectives": None, "_steps": None, "_pushing": {}}

    # --- training ------------------------------------------------------------------------------------------------

    def version(self, optimizer: Optimizer) -> int:
        """What the optimizer's learning rate is a function of, while training: the version of this worker's replica, or
        where it makes steps of its own, these."""
        assert self._joined is not None
        return next(client.steps for client in self._joined.clients if client.optimizer is optimizer)

    @override
    def optimizer_step(
        self,
        optimizer: Optimizer,
        closure: Callable[[], Any],
        model: LightningModule | Module | None = None,
        **kwargs: Any,
    ) -> Any:
        """Compute the gradient, hand it in, take the newest parameters: the optimizer's `step` is a push."""
        output = super().optimizer_step(optimizer, self._then_published(closure), model, **kwargs)
        if (pushing := self._pushing.get(id(optimizer))) is not None:  # after the fit there is none
            self._after_push(pushing.result())
        return output

    def _then_published(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """The gradient, and then, before it is pushed, the buffers that it has left."""

        def computed() -> Any:
            output = closure()
            if self._joined is not None and self._buffers is not None:
                worker = self._worker if self._playing is None else self._playing.turn_of
                self._buffers.publish(worker, sum(self._versions()))
            return output

        return computed

    def _after_push(self, pushed: Pushed) -> None:
        assert self._buffers is not None
        trainer, signals = self._trainer, self._own_end.signals
        self._snapshot = None
        if self._spread is not None and self._spread.way is not None:
            self._spread.way.note_updates(self._worker, sum(self._versions()))
        if self._playing is None and pushed.was_sent:
            self._buffers.take(self._worker, sum(self._versions()))
        self._follow_schedules()
        assert self._steps is not None
        self._steps.pushed(self._versions(), least=(self.max_updates or 0) if pushed.is_last else 0)
        if trainer.should_stop:
            signals.ask_to_stop()
        elif signals.stop:
            trainer.should_stop = True
        if pushed.was_sent and (pushed.applied or not pushed.is_last):
            self._own_data.pushed(trainer)
