"""Distributed data parallel as Lightning has it, with workers forked instead of started anew.

A forked worker needs 0.15 s to its first batch where a started one imports everything again for 4 s, and its death
is noticed at once instead of by the others' timeout.
"""

import mmap
import os
import signal
import socket
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch.distributed as dist
from lightning.fabric.utilities.seed import reset_seed
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy
from typing_extensions import override

from scalebook.training.strategies.launcher import AroundFork, ForkLauncher, Processes, take_rank

LOOPBACK = "127.0.0.1"


class DDP(AroundFork, DDPStrategy):
    """`strategy: ddp`. Arguments are those of Lightning's DDPStrategy, `start_method` excepted.

    On one machine the workers meet on a loopback port that is bound before they are forked, so none can be taken
    meanwhile. On several, or under a cluster's own launcher, it is Lightning's DDPStrategy unchanged.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(start_method="popen", **kwargs)
        self._meeting: socket.socket | None = None
        self._arrivals: memoryview | None = None  # shared: each worker's barriers before training, and who has begun

    @override
    def _configure_launcher(self) -> None:
        assert self.cluster_environment is not None
        if self.num_nodes > 1 or self.cluster_environment.creates_processes_externally:
            super()._configure_launcher()
        else:
            self._launcher = ForkLauncher(self)

    @override
    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Plain values alone, unless told otherwise: Lightning would run what a checkpoint from an address holds."""
        return super().load_checkpoint(checkpoint_path, weights_only=True if weights_only is None else weights_only)

    @override
    def before_fork(self, trainer: Trainer) -> Processes:
        """Bind the port where the workers will meet."""
        if self.num_processes > 1 and getattr(trainer, "_val_check_time_interval", None) is not None:
            raise ValueError(
                "trainer.val_check_interval: a time is told by each worker's own clock, and under ddp those who "
                "validate would wait for those who train. Write a number of batches, or use AsyncPS: its worker 0 "
                "validates alone."
            )
        self._meeting = socket.create_server((LOOPBACK, 0))
        self._arrivals = memoryview(mmap.mmap(-1, 8 * (self.num_processes + 1))).cast("q")
        return Processes(self.num_processes)

    @override
    def after_fork(self, worker: int, trainer: Trainer) -> None:
        """Take the rank; gloo stays on the loopback interface."""
        take_rank(worker, self.num_processes)
        if any(name == "lo" for _, name in socket.if_nameindex()):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        self.set_world_ranks()

    @override
    def after_workers(self) -> None:
        """Close the monitor's end of the meeting port."""
        if self._meeting is not None:
            self._meeting.close()
            self._meeting = None
        self._arrivals = None

    @override
    def arrivals(self) -> Sequence[int] | None:
        if self._arrivals is None or self._arrivals[-1]:
            return None
        return self._arrivals[:-1].tolist()

    def _come(self) -> None:
        if self._arrivals is not None:
            self._arrivals[self.local_rank] += 1

    @override
    def barrier(self, name: str | None = None) -> None:
        self._come()
        super().barrier(name)
        if name == "run-stage" and self._arrivals is not None:
            self._arrivals[-1] = 1
        if name == "run-stage" and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._note_sigterm)

    def _note_sigterm(self, _number: int, _frame: FrameType | None) -> None:
        """Lightning's own handler broadcasts, in whatever collective the rank happens to be, and the ranks deadlock.

        A note is enough: rank 0 ends after its present batch, and the launcher ends the others.
        """
        assert self.lightning_module is not None
        self.lightning_module.trainer._signal_connector.received_sigterm = True

    @override
    def setup_distributed(self) -> None:
        if self._meeting is None:
            super().setup_distributed()
            return
        self._come()
        reset_seed()
        self.set_world_ranks()
        self._process_group_backend = self._get_process_group_backend()
        assert self._timeout is not None
        is_host = self.global_rank == 0
        store = dist.TCPStore(  # type: ignore[attr-defined]  # exported, but not in __all__
            LOOPBACK,
            self._meeting.getsockname()[1],
            self.world_size,
            is_master=is_host,
            timeout=self._timeout,
            master_listen_fd=self._meeting.detach() if is_host else None,
        )
        dist.init_process_group(
            self._process_group_backend,
            store=store,
            rank=self.global_rank,
            world_size=self.world_size,
            timeout=self._timeout,
            device_id=None if self.root_device.type == "cpu" else self.root_device,
        )
