"""The processes of AsyncPS: what they share, what each becomes, and what happens when one dies."""

import ctypes
import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, UntypedStorage
from torch.nn.parameter import is_lazy
from typing_extensions import override

from scalebook.training.base import NodeRank, ProcessLost, node_rank
from scalebook.training.engine import Launch
from scalebook.training.engine.rules import Settings, one_machine
from scalebook.training.lightning.arguments import AsyncArguments
from scalebook.training.lightning.async_ps.nodes import NodePart, SimulationNode, TrainingNode, machine_of_several
from scalebook.training.lightning.async_ps.refusals import (
    refuse_elastic,
    refuse_finders,
    refuse_model,
    refuse_own_clipping,
    refuse_settings,
    warn_of_averages,
)
from scalebook.training.lightning.async_ps.session import (
    FittedSession,
    MonitorSession,
    ServerSession,
    Session,
    without_finders,
)
from scalebook.training.lightning.async_ps.sim_worker import ArrivingSimulation
from scalebook.training.lightning.async_ps.state_file import StateFile
from scalebook.training.lightning.async_ps.worker_process import worker_parts
from scalebook.training.lightning.async_ps.worker_session import ArrivingWorker
from scalebook.training.lightning.package import Callback, LightningDataModule, Trainer, TrainerFn
from scalebook.training.lightning.processes.deaths import Deaths, HearsOfDeaths, resume_hint
from scalebook.training.lightning.processes.process_watch import LostProcess, Reaction
from scalebook.training.lightning.processes.strategy_launcher import AroundFork, Processes, take_rank
from scalebook.training.lightning.tuners import tune

LEAST: Final = 2**20  # bytes of one storage
WORTH: Final = 64 * 2**20  # bytes of all together
MOST: Final = 4096  # storages, the largest: a process may have 65530 mappings
_PAGE: Final = mmap.PAGESIZE
_FIXED: Final = 0x10  # MAP_FIXED of Linux


class Piece(NamedTuple):
    """Whole pages of memory: their address, length in bytes, and offset in the file."""

    address: int
    size: int
    offset: int


class ParameterSpill:
    """Pages whose content is in a file until `bring_back`. Nothing may write to them meanwhile.

    It keeps references to the storages, so that their memory cannot be given to anything else meanwhile.
    """

    def __init__(
        self, pieces: Sequence[Piece] = (), storages: Sequence[UntypedStorage] = (), descriptor: int = -1
    ) -> None:
        self._pieces, self._storages, self._descriptor = pieces, storages, descriptor

    @classmethod
    def of(cls, tensors: Iterable[Tensor]) -> "ParameterSpill":
        """Move large parameters that are in this process's private CPU memory to a file; none if the disk is full."""
        storages = _storages(tensors)
        pieces = _pieces(storages) if sum(storage.nbytes() for storage in storages) >= WORTH else []
        if sum(piece.size for piece in pieces) < WORTH:
            return cls()
        with tempfile.TemporaryFile() as file:
            try:
                os.posix_fallocate(file.fileno(), 0, pieces[-1].offset + pieces[-1].size)
                for piece in pieces:
                    _all_of(piece, os.pwritev, file.fileno())
            except OSError:  # no room: they stay where they are
                return cls()
            for piece in pieces:
                _map(piece, mmap.MAP_PRIVATE, file.fileno())
            return cls(pieces, storages, os.dup(file.fileno()))

    def forget(self) -> None:
        """Drop the references in a forked process, which gets other parameters when it joins, so that the pages can be
        freed."""
        if self._pieces:
            os.close(self._descriptor)
        self._pieces, self._storages = (), ()

    def bring_back(self) -> None:
        """Load everything back to the same addresses. OSError if the file cannot be read."""
        for piece in self._pieces:
            _map(piece, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
            _all_of(piece, os.preadv, self._descriptor)
        if self._pieces:
            os.close(self._descriptor)
        self._pieces, self._storages = (), ()


def _storages(tensors: Iterable[Tensor]) -> list[UntypedStorage]:
    """The large storages on a CPU, each once, the largest first."""
    by_address: dict[int, UntypedStorage] = {}
    for tensor in tensors:
        if type(tensor.data) is not Tensor or is_lazy(tensor):
            continue  # a wrapper of tensors, or without a size yet
        if tensor.device.type == "cpu" and tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            if storage.nbytes() >= LEAST:
                by_address[storage.data_ptr()] = storage
    return sorted(by_address.values(), key=lambda storage: storage.nbytes(), reverse=True)[:MOST]


def _pieces(storages: Iterable[UntypedStorage]) -> list[Piece]:
    """The whole pages within the storages, where they are this process's own memory."""
    private, pieces, offset = _private(), list[Piece](), 0
    for storage in storages:
        begin = storage.data_ptr()
        first, end = -(-begin // _PAGE) * _PAGE, (begin + storage.nbytes()) // _PAGE * _PAGE
        if any(low <= first and end <= high for low, high in private):
            pieces.append(Piece(first, end - first, offset))
            offset += end - first
    return pieces


def _private() -> list[tuple[int, int]]:
    """Address ranges [from, to) of memory that belongs to this process alone and to no file."""
    ranges: list[tuple[int, int]] = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, permissions, _, _, inode = line.split()[:5]
        low, high = (int(address, 16) for address in addresses.split("-"))
        if permissions == "rw-p" and inode == "0":
            joins = bool(ranges) and ranges[-1][1] == low
            ranges[-1:] = [(ranges[-1][0], high)] if joins else [*ranges[-1:], (low, high)]
    return ranges


def _all_of(piece: Piece, move: Callable[[int, list[memoryview], int], int], descriptor: int) -> None:
    """Copy all bytes of a piece to or from the file, by `move`, which may copy fewer at a time."""
    content, copied = memoryview((ctypes.c_char * piece.size).from_address(piece.address)).cast("B"), 0
    while copied < piece.size:
        moved = move(descriptor, [content[copied:]], piece.offset + copied)
        if not moved:
            raise OSError("the file with the spilled parameters is too short")
        copied += moved


def _map(piece: Piece, flags: int, descriptor: int) -> None:
    """Let the pages of a piece be those of the file, or new ones if `descriptor` is -1; OSError if that cannot be."""
    call = ctypes.CDLL(None, use_errno=True).mmap
    call.restype = ctypes.c_void_p
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
    protection, offset = mmap.PROT_READ | mmap.PROT_WRITE, 0 if descriptor < 0 else piece.offset
    if call(piece.address, piece.size, protection, flags | _FIXED, descriptor, offset) != piece.address:
        raise OSError(ctypes.get_errno(), "parameters could not be mapped")


_NOTHING_TRAINS: Final = NodePart(1, Processes(1), 0.0)


class AsyncRun(AroundFork):
    """The processes of a run: a monitor, which does not train, workers, and servers under host `process`.

    `session`, which is what this process is at present, handles Lightning's hooks.
    """

    def __init__(self, arguments: AsyncArguments) -> None:
        self._arguments = arguments
        self.session = Session()
        self.started_with: dict[str, str] = {}
        """Digests of what must be the same on all nodes, by key."""
        self._nodes, self._on_each = 1, 1
        self._place: NodeRank | None = None  # of this process among those that somebody started; None: it is alone
        self._machine = _NOTHING_TRAINS
        self._between = self.session  # what this process is while nothing is under way
        # Of a fit, from before the fork on:
        self._kept: StateFile
        self._aside: ParameterSpill
        self.hands_on_data = False
        """Whether, in the last fit, batches of workers that died were left to the others."""
        self._has_warned = False  # of an average of the weights

    @override
    def __getstate__(self) -> dict[str, Any]:
        """The state for a copy or a pickle: without what the processes of a run share."""
        shared = ("_kept", "_aside")
        return {name: value for name, value in vars(self).items() if name not in shared} | {"_machine": _NOTHING_TRAINS}

    # --- in the monitor --------------------------------------------------------------------------------------------

    def configure(self, nodes: int, on_each: int) -> None:
        """Set the number of nodes, and of workers on each. ValueError for peers on several."""
        if nodes > 1 and self._arguments.server.local.peers:
            raise one_machine()
        self._nodes, self._on_each = nodes, on_each
        self._place = node_rank.node_rank(os.environ, nodes, on_each)

    @override
    def tune(self, trainer: Trainer, run: Callable[[], Any], objects: Iterable[Any]) -> bool:
        refuse_finders(trainer, self._place is not None)
        modules = [module for module in objects if isinstance(module, LightningDataModule)]
        return tune(trainer, run, modules)

    @override
    def before_fork(self, trainer: Trainer) -> Processes:
        """Create what the processes share. Anything but training needs only one worker."""
        if trainer.state.fn != TrainerFn.FITTING:
            self._machine = _NOTHING_TRAINS
            return self._machine.forks
        settings = self._arguments.settings(trainer)
        workers = self._nodes * self._on_each
        refuse_settings(trainer, workers)
        refuse_own_clipping(trainer, settings, workers, are_processes=not self._arguments.is_simulated)
        if self._arguments.elastic is not None:
            refuse_elastic(self._arguments.elastic, self._on_each, self._nodes, settings)
        refuse_model(trainer.lightning_module, settings)
        sees_all = self._arguments.is_simulated
        self._has_warned = not sees_all and warn_of_averages(trainer, settings, workers)
        self._machine, self._kept = self._machine_of(settings), StateFile()
        self._machine.tell_deaths([one for one in trainer.callbacks if isinstance(one, HearsOfDeaths)])  # type: ignore[attr-defined]
        self._aside = ParameterSpill.of(trainer.lightning_module.parameters())
        self.session = MonitorSession(self._machine)
        self._between = FittedSession(self._kept, self.session.figures)
        return self._machine.forks

    def _machine_of(self, settings: Settings) -> NodePart:
        arguments, workers = self._arguments, self._nodes * self._on_each
        seed = int(os.environ.get("PL_GLOBAL_SEED", "0"))
        if self._place is not None:
            return machine_of_several(
                self._place, settings, os.environ, arguments, workers=workers, on_each=self._on_each, seed=seed,
                started_with=self.started_with,
            )  # fmt: skip
        launch = Launch(workers, settings, seed=seed)
        forks = Processes(launch.processes, launch.servers)
        kind = SimulationNode if arguments.is_simulated else TrainingNode
        return kind(launch, forks, arguments.limits.deadline_s, Deaths(launch, arguments.limits.restarts))

    @override
    def lost(self, lost: LostProcess) -> Reaction:
        return self._machine.react(lost)

    @override
    def arrivals(self) -> Sequence[int] | None:
        return self._machine.arrivals()

    @override
    def waits(self) -> Mapping[int, str]:
        return self._machine.waits()

    @override
    def explained(self, error: ProcessLost, callbacks: list[Callback]) -> ProcessLost:
        return resume_hint(error, self._machine.checkpoint(), callbacks)

    @override
    def after_workers(self) -> None:
        """Release the shared memory, and forget the number of workers, which the next call may change."""
        if self._machine.is_training:
            self.hands_on_data = self._machine.hands_on_data
            self._kept.close()
            self._aside.bring_back()
        self._machine.close()
        self._machine, self.session = _NOTHING_TRAINS, self._between

    # --- in the processes that were forked ---------------------------------------------------------------------------

    @override
    def after_fork(self, worker: int, trainer: Trainer) -> None:
        """Become worker `worker`."""
        machine = self._machine
        if not machine.is_training:
            take_rank(worker, machine.processes)
            without_finders(trainer)
            self.session = Session(worker, machine.processes)
            return
        self._aside.forget()
        arguments = (worker, self._on_each, self._arguments, machine)
        if isinstance(machine, SimulationNode):
            players = machine.players()
            parts = worker_parts(*arguments, players, trainer, self._kept, players.next_gradient)
            self.session = ArrivingSimulation(parts, players)
        else:
            parts = worker_parts(*arguments, machine.worker(worker), trainer, self._kept, has_warned=self._has_warned)
            self.session = ArrivingWorker(parts)

    @override
    def become_server(self, server: int, trainer: Trainer) -> None:
        """Become server `server`; its rank comes after the workers'."""
        machine = self._machine
        rank, end = machine.processes + server, machine.server(server)
        self.session = ServerSession(rank, machine, self._arguments, end, trainer)

    @override
    def stand_in(self, worker: int, trainer: Trainer) -> None:
        """Become the proxy of worker `worker` of another node, with its rank."""
        end = self._machine.stand_in(worker)
        self.session = ServerSession(worker, self._machine, self._arguments, end, trainer)

    @override
    def returns(self, worker: int, first: int) -> bool:
        return self._machine.returns(worker)

    @override
    def save_final_state(self, trainer: Trainer) -> None:
        self.session.save_final_state()
