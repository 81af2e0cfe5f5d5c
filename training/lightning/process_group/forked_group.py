"""A strategy whose workers are forked and meet in one process group of torch.

A forked worker needs 0.15 s to its first batch; a started one imports everything again, 4 s. Its death is noticed at
once instead of by the others' timeout.
"""

import mmap
import os
import signal
import socket
import threading
from collections.abc import Sequence
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from typing_extensions import override

from scalebook.training.base import NodeRank, node_rank
from scalebook.training.engine.rules import PositiveFloat, check_limits
from scalebook.training.lightning.data.common_draws import order_alike
from scalebook.training.lightning.package import ClusterEnvironment, ParallelStrategy, Trainer, TrainerFn
from scalebook.training.lightning.process_group.ended_optimizers import OptimizersEnd, as_they_end, put_ended
from scalebook.training.lightning.process_group.evaluation import WorkersMetrics, exchange, share_of
from scalebook.training.lightning.process_group.group_nodes import agents_store, node_monitor
from scalebook.training.lightning.processes.addresses import interface_to, listening_at
from scalebook.training.lightning.processes.cuda_fork import prepare_for_forks
from scalebook.training.lightning.processes.forked import GRACE_S
from scalebook.training.lightning.processes.node_monitors import BEGUN, NodeMonitor, next_run
from scalebook.training.lightning.processes.strategy_launcher import (
    AroundFork,
    ForkLauncher,
    Processes,
    StartedEnvironment,
    forks,
    ours,
    repr_for_trainers,
    take_rank,
)
from scalebook.training.lightning.processes.threads import shared_out
from scalebook.training.lightning.random_streams import draw_as

LOOPBACK: Final = "127.0.0.1"
DEADLINE_S: Final = 300.0


class ForkedGroup(AroundFork, ParallelStrategy):
    """What DDP and ModelParallel share: how workers start and meet, and how they share a validation.

    On one machine the workers meet at a loopback port, which is bound before they are forked, so no other process can
    take it. On several machines (`trainer.num_nodes`) each process that torchrun, srun or a person starts forks its
    share of the workers, and all meet at MASTER_ADDR and MASTER_PORT. Under MPI and LSF, Lightning's own strategy
    starts the workers.

    Workers whose `data_rank` is the same compute the same batches; those of one `data_group` have one each.
    """

    if TYPE_CHECKING:  # of Lightning's strategy, which stands behind this class
        num_nodes: int
        _process_group_backend: str | None
        _timeout: timedelta | None

        @property
        def num_processes(self) -> int: ...

        def set_world_ranks(self) -> None: ...

        def _get_process_group_backend(self) -> str: ...

    def __init__(self, deadline_s: PositiveFloat = DEADLINE_S, **kwargs: Any) -> None:
        check_limits(type(self), {"deadline_s": deadline_s})
        prepare_for_forks()
        self.deadline_s = deadline_s
        super().__init__(**kwargs)
        self.started_with: dict[str, str] = {}
        """Digests of what must be the same on all nodes, by key."""
        self.own_metrics: set[str] = set()
        """Names of metrics that are not reduced over all workers, by the model's choice or by their nature."""
        self._meeting: socket.socket | None = None  # worker 0's, where all find each other
        self._arrivals: memoryview | None = None  # shared: each worker's barriers before training, and who has begun
        self._place: NodeRank | None = None  # of this process among those that were started; None: it is alone
        self._monitor: NodeMonitor | None = None  # of the others, if it is not alone
        self._run = ""  # its name, the same on all machines
        self._first = 0  # of the workers here, the first one's number

    @property
    def data_size(self) -> int:
        """How many different batches the workers compute at a time."""
        return self.world_size

    @property
    def data_rank(self) -> int:
        """Which of them this worker computes."""
        return self.global_rank

    @property
    def data_group(self) -> Any:
        """The process group of workers that compute one of them each; None is all."""
        return None

    @override
    def __repr__(self) -> str:
        return repr_for_trainers(self)

    @override
    def _configure_launcher(self) -> None:
        assert self.cluster_environment is not None
        if not forks(self.cluster_environment):
            super()._configure_launcher()
            return
        self._place = node_rank.node_rank(os.environ, self.num_nodes, self.num_processes)
        if self._place is not None:
            self.cluster_environment = StartedEnvironment()
            self.set_world_ranks()
        self._launcher = ForkLauncher(self)

    @property
    def cluster_environment(self) -> ClusterEnvironment | None:
        return self._environment

    @cluster_environment.setter
    def cluster_environment(self, environment: ClusterEnvironment | None) -> None:
        self._environment = ours(environment)

    @property
    @override
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """For validation and test, no sampler of Lightning's, which would repeat samples: `process_dataloader` divides
        by batches."""
        if self._evaluates():
            return {"num_replicas": 1, "rank": 0}
        kwargs: dict[str, Any] = super().distributed_sampler_kwargs
        return kwargs

    @override
    def process_dataloader(self, dataloader: object) -> object:
        assert self.lightning_module is not None
        if self.data_size > 1:
            order_alike(dataloader, self.data_rank)
        if self._evaluates():
            return share_of(self.lightning_module.trainer, dataloader, self.data_rank, self.data_size)
        return super().process_dataloader(dataloader)

    @override
    def on_train_start(self) -> None:
        super().on_train_start()
        draw_as(self.data_rank, self.root_device)

    def _evaluates(self) -> bool:
        """Whether several workers validate or test, each a part."""
        if self.data_size == 1 or self.lightning_module is None:
            return False
        trainer = self.lightning_module.trainer
        return bool(trainer.evaluating or trainer.sanity_checking)

    def share_evaluation(self, trainer: Trainer) -> None:
        """To be called in `setup`: metrics become those of all workers."""
        if self.data_size > 1:
            WorkersMetrics(trainer, self, self.own_metrics).install()

    @override
    def all_gather(self, tensor: Tensor, group: Any | None = None, sync_grads: bool = False) -> Tensor:
        """Gather. ValueError while validating or testing if workers have different shapes: gloo would hang or mix them
        up."""
        if group in (None, dist.group.WORLD) and self._evaluates():
            shapes = exchange(list(tensor.shape), self.root_device)
            if any(shape != shapes[0] for shape in shapes):
                raise ValueError(
                    f"all_gather: the workers' tensors have different shapes, {shapes}, because each worker validates "
                    "or tests a different part of the set, and these parts differ in size. Gather with a torchmetric "
                    "(CatMetric), or set trainer.use_distributed_sampler: false and use your own DistributedSampler."
                )
        return super().all_gather(tensor, group, sync_grads)

    @override
    def before_fork(self, trainer: Trainer) -> Processes:
        """Bind the port at which the workers will meet."""
        if self.world_size > 1 and getattr(trainer, "_val_check_time_interval", None) is not None:
            raise ValueError(
                "trainer.val_check_interval: each worker measures the time with its own clock, so a worker that "
                "validates would wait for one that still trains. Use a number of batches, or use AsyncPS, where worker "
                "0 validates without the others."
            )
        on_node = self.num_processes // (1 if self._place is None else self._place.tasks)
        self._arrivals = memoryview(mmap.mmap(-1, 8 * (on_node + 1))).cast("q")
        if self._place is None:
            self._meeting = socket.create_server((LOOPBACK, 0))
            return Processes(on_node)
        self._first = self._place.node * self.num_processes + self._place.task * on_node
        self._run, meets_at = next_run(os.environ), self._place.port
        if self._place.index == 0 and not self._place.hosted:
            self._meeting = listening_at(self._place, 0)
            meets_at = self._meeting.getsockname()[1]
        arguments = (self.num_processes, self.deadline_s, self.started_with, meets_at)
        self._monitor = node_monitor(self._place, self._run, *arguments)
        return Processes(on_node, threads=shared_out(self.num_processes), first=self._first, others=self._monitor)

    @override
    def after_fork(self, worker: int, trainer: Trainer) -> None:
        """Take the rank; on one machine gloo stays on the loopback interface."""
        take_rank(worker, self.num_nodes * self.num_processes, self.num_processes)
        if (interface := interface_to(self._place)) is not None:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        self.set_world_ranks()

    @override
    def save_final_state(self, trainer: Trainer) -> OptimizersEnd | None:
        return as_they_end(trainer) if trainer.state.fn == TrainerFn.FITTING else None

    @override
    def give_final_state(self, trainer: Trainer, state: OptimizersEnd | None) -> None:
        if state is not None:
            put_ended(trainer, state)

    @override
    def after_workers(self) -> None:
        """Close the monitor's end of the meeting port."""
        if self._meeting is not None:
            self._meeting.close()
        self._meeting = self._monitor = self._arrivals = None

    @override
    def arrivals(self) -> Sequence[int] | None:
        if self._arrivals is None:
            return None
        arrived = None if self._arrivals[-1] else self._arrivals[:-1].tolist()
        if self._monitor is not None and not self._monitor.arrived(BEGUN if arrived is None else min(arrived)):
            return None
        return arrived

    def _come(self) -> None:
        if self._arrivals is not None:
            self._arrivals[self.global_rank - self._first] += 1

    @override
    def barrier(self, name: str | None = None) -> None:
        self._come()
        super().barrier(name)  # type: ignore[safe-super]  # that of the strategy behind this class
        if name == "run-stage" and self._arrivals is not None:
            self._arrivals[-1] = 1
        if name == "run-stage" and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._note_sigterm)

    def _note_sigterm(self, _number: int, _frame: FrameType | None) -> None:
        """Lightning's own handler broadcasts, in whatever collective the rank happens to be, and the ranks deadlock.

        A note is enough: rank 0 ends after its present batch, and the launcher ends the others. On another machine the
        monitor tells rank 0's.
        """
        assert self.lightning_module is not None
        if self.is_global_zero:
            self.lightning_module.trainer._signal_connector.received_sigterm = True

    def meet(self) -> bool:
        """Make the process group, in a forked worker. False: somebody else has started the workers, and Lightning's
        strategy makes it."""
        if self._meeting is None and self._monitor is None:
            return False
        self._come()
        self.set_world_ranks()
        self._process_group_backend = self._get_process_group_backend()
        assert self._timeout is not None
        dist.init_process_group(
            self._process_group_backend,
            store=self._store(self._timeout),
            rank=self.global_rank,
            world_size=self.world_size,
            timeout=self._timeout,
            device_id=None if self.root_device.type == "cpu" else self.root_device,
        )
        return True

    def _store(self, timeout: timedelta) -> Store:
        """Where the workers find each other: worker 0 has it, or torchrun's agent. Beyond one machine their monitors
        say which is missing, by a deadline."""
        host, is_host = LOOPBACK, self.global_rank == 0
        port = 0 if self._meeting is None else self._meeting.getsockname()[1]
        if self._place is not None and self._monitor is not None:
            host, port = self._place.address, self._monitor.await_met(self.deadline_s + GRACE_S)
            if self._place.hosted:
                return PrefixStore(f"scalebook {self._run} workers", agents_store(self._place, timeout))
        return TCPStore(
            host,
            port,
            self.world_size,
            is_master=is_host,
            timeout=timeout,
            master_listen_fd=self._meeting.detach() if is_host and self._meeting is not None else None,
        )


def batches_at_once(trainer: Trainer) -> int:
    """How many different batches the workers of a synchronous strategy compute at a time."""
    strategy = trainer.strategy
    return strategy.data_size if isinstance(strategy, ForkedGroup) else trainer.world_size
