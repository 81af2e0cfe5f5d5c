"""Distributed data parallel as Lightning has it, with workers forked instead of started anew.

A forked worker needs 0.15 s to its first batch where a started one imports everything again for 4 s, and its death
is noticed at once instead of by the others' timeout.
"""

import mmap
import os
import signal
import socket
import threading
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any, Final

import torch.distributed as dist
from lightning.fabric.utilities.seed import reset_seed
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from scalebook.training.ps.policy.codecs import CodecName, in_halves, make_codec
from scalebook.training.ps.policy.frames import Codec
from scalebook.training.strategies.exchange import KEY, Exchange, make_exchange
from scalebook.training.strategies.launcher import AroundFork, ForkLauncher, Processes, take_rank

LOOPBACK = "127.0.0.1"
STATE: Final = "scalebook_ddp"
"""Key in a checkpoint: what each worker's codec keeps, by rank."""
ONE_BUCKET_MB: Final = 1 << 20
"""So large that all gradients of a type travel in one frame."""


class DDP(AroundFork, DDPStrategy):
    """Synchronous: every worker's gradient is averaged into each update, and all wait for the slowest.

    `strategy: ddp`. Arguments are those of Lightning's DDPStrategy, `start_method` excepted. On one machine the workers
    meet on a loopback port that is bound before they are forked, so none can be taken meanwhile. On several, or under a
    cluster's own launcher, workers are started as Lightning's DDPStrategy does it.

    Args:
        codec: How gradients travel. `fp32`: as they are; `bf16`, `fp16`: half of the bytes, added up on their way.
            By any other each worker hands its frame to all: `int8`: a quarter; `sign`: a thirty-second; `qsgd`: few
            levels, drawn; `topk`, `randomk`: a share of the values; `powersgd`: thin matrices. What a worker takes then
            grows with their number.
    """

    def __init__(self, codec: CodecName | Codec = "fp32", **kwargs: Any) -> None:
        self.codec = make_codec(codec, KEY)
        if self.codec.codes and kwargs.get("ddp_comm_hook") is not None:
            raise ValueError(f"{KEY}: {self.codec.name} does not go with a ddp_comm_hook. Write fp32, or leave it out.")
        if self.codec.codes and not in_halves(self.codec):
            kwargs.setdefault("bucket_cap_mb", ONE_BUCKET_MB)
        super().__init__(start_method="popen", **kwargs)
        self.exchange: Exchange | None = None  # from the set-up of a fit on, in a worker that is not alone
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
    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any | None = None) -> None:
        """With what each worker's codec keeps; all workers come here."""
        state = {} if self.exchange is None else self.exchange.state()
        if state:
            states: list[Any] | None = [None] * self.world_size if self.is_global_zero else None
            dist.gather_object(state, states)
            checkpoint = {**checkpoint, STATE: {"codec": repr(self.codec), "workers": states}}
        super().save_checkpoint(checkpoint, filepath, storage_options)

    @override
    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Each worker has what it kept. It is lost where the codec is another, or workers are more or fewer."""
        super().load_optimizer_state_dict(checkpoint)
        found = checkpoint.get(STATE)
        if found and self.exchange is not None and self.exchange.state():
            if found["codec"] == repr(self.codec) and len(found["workers"]) == self.world_size:
                self.exchange.restore(found["workers"][self.global_rank])
            else:
                rank_zero_warn(
                    f"ckpt_path: what the codec of {len(found['workers'])} workers kept ({found['codec']}) is lost: "
                    f"here are {self.world_size} with {self.codec!r}."
                )

    @override
    def _register_ddp_hooks(self) -> None:
        assert isinstance(self.model, DistributedDataParallel)
        if self._ddp_comm_hook is not None or self.world_size == 1:
            super()._register_ddp_hooks()
            return
        self.exchange = make_exchange(self.codec, self.model.module, self.root_device.type != "cpu")
        self.model.register_comm_hook(self.exchange, _average)

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


def _average(exchange: Exchange, bucket: GradBucket) -> Future[Tensor]:
    """Torch reads the annotations of a hook, so a method of ours is called by a function."""
    return exchange.average(bucket)
