"""Simulated workers under Lightning: connects the one process that simulates them with the engine."""

import ctypes
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from typing_extensions import override

from scalebook.training.engine.worker.worker_end import JoinedEnd, PushResult, RandomStream, SimulationEnd
from scalebook.training.lightning.async_ps.refusals import refuse_playing
from scalebook.training.lightning.async_ps.session import Session
from scalebook.training.lightning.async_ps.worker_process import WorkerParts, WorkerProcess
from scalebook.training.lightning.async_ps.worker_session import WorkerSession

_BITS = 624 * 4 + 4
"""Size of NumPy's Mersenne twister state, bytes: its numbers, and how many are used up."""


class PythonStream(RandomStream):
    """Python's `random`."""

    @override
    def seeded(self, seed: int) -> Any:
        return random.Random(seed).getstate()

    @override
    def state(self) -> Any:
        return random.getstate()

    @override
    def load(self, state: Any) -> None:
        version, numbers, gauss = state
        random.setstate((version, tuple(numbers), gauss))


class NumpyStream(RandomStream):
    """NumPy's global generator. A state is its bits, and the rest of a pair of normal numbers, or None.

    Getting and setting a state through NumPy takes 50 us, so the bits are copied in memory if neither state has the
    rest of a pair.
    """

    def __init__(self) -> None:
        self._now: tuple[bytes, float | None] | None = None  # as it was when last asked or told
        address = np.random.get_state(legacy=False)["bit_generator"] == "MT19937" and _address()
        self._memory = (ctypes.c_ubyte * _BITS).from_address(address) if address else None

    @override
    def seeded(self, seed: int) -> Any:
        return _packed(np.random.RandomState(seed % 2**32).get_state(legacy=False))

    @override
    def state(self) -> Any:
        if self._now is None or self._memory is None or self._now != (bytes(self._memory), None):
            self._now = _packed(np.random.get_state(legacy=False))
        return self._now

    @override
    def load(self, state: Any) -> None:
        bits, gauss = state
        nothing_left = gauss is None and self._now is not None and self._now[1] is None
        if self._memory is not None and nothing_left:
            ctypes.memmove(self._memory, bits, _BITS)
        else:
            numbers, used = np.frombuffer(bits[:-4], np.uint32), int.from_bytes(bits[-4:], "little")
            twister = {"bit_generator": "MT19937", "state": {"key": numbers, "pos": used}}
            np.random.set_state({**twister, "has_gauss": int(gauss is not None), "gauss": gauss or 0.0})
        self._now = bits, gauss


class CudaStream(RandomStream):
    """A GPU's generator."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    @override
    def seeded(self, seed: int) -> Any:
        return torch.Generator(self._device).manual_seed(seed).get_state()

    @override
    def state(self) -> Any:
        return torch.cuda.get_rng_state(self._device)

    @override
    def load(self, state: Any) -> None:
        torch.cuda.set_rng_state(state, self._device)


def streams_of(device: torch.device) -> list[RandomStream]:
    """The generators that a model on `device` may draw from."""
    streams: list[RandomStream] = [PythonStream(), NumpyStream()]
    return [*streams, CudaStream(device)] if device.type == "cuda" else streams


def _address() -> int:
    return int(np.random.get_bit_generator().ctypes.state_address)  # type: ignore[attr-defined]  # missing in its stubs


def _packed(state: Any) -> tuple[bytes, float | None]:
    twister = state["state"]
    bits = twister["key"].astype(np.uint32).tobytes() + int(twister["pos"]).to_bytes(4, "little")
    return bits, float(state["gauss"]) if state["has_gauss"] else None


class ArrivingSimulation(WorkerProcess):
    """The session from the fork to the end of the set-up.

    `python`: the state of Python's `random` before the fork, which continues here: Python reseeds it in a fork.
    """

    def __init__(self, parts: WorkerParts, playing: SimulationEnd, python: tuple[Any, ...]) -> None:
        super().__init__(parts)
        self._playing = playing
        random.setstate(python)

    @override
    def set_up(self, trainer: Any, optimizers: Sequence[Optimizer], device: torch.device) -> Session:
        refuse_playing(trainer)
        return SimulatedSession(self.parts, self._playing, optimizers, device)


class SimulatedSession(WorkerSession):
    """One Trainer in one process, with the batches of all workers in the order in which their gradients are due.

    For Lightning it is a single worker. Before each batch the loader asks whose turn it is, and the model becomes that
    worker's; `optimizer.step` is that worker's push. Validation and checkpoints use the newest version at that virtual
    time; they take no virtual time.
    """

    def __init__(
        self, parts: WorkerParts, playing: SimulationEnd, optimizers: Sequence[Optimizer], device: torch.device
    ) -> None:
        self._playing = playing
        super().__init__(parts, optimizers, device)

    @override
    def _join(self, model: Module, optimizers: Sequence[Optimizer]) -> JoinedEnd:
        """ValueError for what cannot be played, too."""
        seed, streams = torch.initial_seed(), streams_of(self.device)
        self._playing.play(self.data.work, self.buffers.now, self._begins, self.buffers.show_own, seed, streams)
        return super()._join(model, optimizers)

    def _begins(self, worker: int, buffers: list[Tensor]) -> None:
        """Called before each worker's next gradient, with its buffers."""
        self.following.rates()  # of the version that it computes from
        self.buffers.apply_policy(worker, self.following.updates, buffers)

    @override
    def _share_buffers(self) -> None:
        self.buffers.share(None)

    @override
    def _go_on_from_checkpoint(self) -> None:
        """The clock goes on where the checkpoint was, if there is one. All pull then, as real workers do: gradients
        that were under way are computed anew."""
        if self.resumed.clock_s is not None:
            self._playing.resume(self.resumed.clock_s)

    @property
    @override
    def _whose_gradient(self) -> int:
        return self._playing.current_worker

    @override
    def _take_buffers(self, pushed: PushResult) -> None:
        """Nothing: whoever begins its next gradient does."""

    @override
    def clock_state(self) -> dict[str, Any]:
        return {"clock_s": self._playing.now()}
