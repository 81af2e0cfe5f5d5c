"""The random numbers of a run's processes: worker 0 draws what one process would, each other worker from streams of its
own."""

import ctypes
import hashlib
import random
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from typing_extensions import override

from scalebook.training.engine.worker import worker_end

_BITS = 624 * 4 + 4
"""Size of NumPy's Mersenne twister state, bytes: its numbers, and how many are used up."""
_at_fork: dict[str, int] = {}
"""In a forked process, a digest of each generator's state at the fork, where all workers are alike."""


class ProcessStream(worker_end.RandomStream):
    """One generator of this process, and the seeds of its workers."""

    name: str

    @abstractmethod
    def seeded(self, seed: int) -> Any:
        """The state with this seed, below 2**64."""

    @override
    def of_worker(self, worker: int) -> Any:
        return self.seeded(seed_of(worker, self.name))


class TorchStream(ProcessStream):
    """Torch's generator on the CPU."""

    name = "torch"

    @override
    def seeded(self, seed: int) -> Any:
        return torch.Generator().manual_seed(seed).get_state()

    @override
    def state(self) -> Any:
        return torch.get_rng_state()

    @override
    def load(self, state: Any) -> None:
        torch.set_rng_state(state)


class PythonStream(ProcessStream):
    """Python's `random`."""

    name = "python"

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


class NumpyStream(ProcessStream):
    """NumPy's global generator. A state is its bits, and the rest of a pair of normal numbers, or None; where the user
    has set another kind of bit generator, it is NumPy's own dictionary.

    Getting and setting a state through NumPy takes 50 us, so the bits are copied in memory if neither state has the
    rest of a pair.
    """

    name = "numpy"

    def __init__(self) -> None:
        self._now: Any = None  # as it was when last asked or told
        self._memory = (ctypes.c_ubyte * _BITS).from_address(_address()) if _is_twister() else None

    @override
    def seeded(self, seed: int) -> Any:
        words = [seed & 0xFFFFFFFF, seed >> 32]
        if _is_twister():
            return _packed(np.random.RandomState(words).get_state(legacy=False))
        kind: Any = type(np.random.get_bit_generator())  # type: ignore[attr-defined]  # missing in its stubs
        return kind(words).state | {"has_gauss": 0, "gauss": 0.0}

    @override
    def state(self) -> Any:
        if self._now is None or self._memory is None or self._now != (bytes(self._memory), None):
            self._now = _packed(np.random.get_state(legacy=False))
        return self._now

    @override
    def load(self, state: Any) -> None:
        if isinstance(state, dict):
            np.random.set_state(state)
            return
        bits, gauss = state
        nothing_left = gauss is None and self._now is not None and self._now[1] is None
        if self._memory is not None and nothing_left:
            ctypes.memmove(self._memory, bits, _BITS)
        else:
            numbers, used = np.frombuffer(bits[:-4], np.uint32), int.from_bytes(bits[-4:], "little")
            twister = {"bit_generator": "MT19937", "state": {"key": numbers, "pos": used}}
            np.random.set_state({**twister, "has_gauss": int(gauss is not None), "gauss": gauss or 0.0})
        self._now = bits, gauss


class CudaStream(ProcessStream):
    """A GPU's generator, which has torch's seeds."""

    name = "torch"

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


def streams_of(device: torch.device) -> list[ProcessStream]:
    """The generators that a model on `device` may draw from."""
    streams = cpu_streams()
    return [*streams, CudaStream(device)] if device.type == "cuda" else streams


def cpu_streams() -> list[ProcessStream]:
    """Those on the CPU."""
    return [TorchStream(), PythonStream(), NumpyStream()]


def _is_twister() -> bool:
    return bool(np.random.get_state(legacy=False)["bit_generator"] == "MT19937")


def _address() -> int:
    return int(np.random.get_bit_generator().ctypes.state_address)  # type: ignore[attr-defined]  # missing in its stubs


def _packed(state: Any) -> Any:
    if state["bit_generator"] != "MT19937":
        return state
    twister = state["state"]
    bits = twister["key"].astype(np.uint32).tobytes() + int(twister["pos"]).to_bytes(4, "little")
    return bits, float(state["gauss"]) if state["has_gauss"] else None


# --- of workers ------------------------------------------------------------------------------------------------------


def digests() -> dict[str, int]:
    """A digest of each generator's present state on the CPU, by its name."""
    torchs, python, numpys = (stream.state() for stream in cpu_streams())
    states = {"torch": torchs.numpy().tobytes(), "python": repr(python).encode(), "numpy": repr(numpys).encode()}
    return {name: int.from_bytes(hashlib.blake2b(state, digest_size=8).digest()) for name, state in states.items()}


def begin_process(python: Any) -> None:
    """At the beginning of a forked process: continue Python's `random` from the state before the fork, since Python
    seeds it anew; the others continue by themselves."""
    random.setstate(python)
    _at_fork.clear()
    _at_fork.update(digests())


def seed_of(worker: int, generator: str = "torch") -> int:
    """63 bits. They follow from the generator's state at the fork, so that they are a function of the user's seed, and
    the next fit of a script has other ones."""
    base = (_at_fork or digests())[generator.split()[0]]
    return int.from_bytes(hashlib.blake2b(f"{base} {generator} {worker}".encode(), digest_size=8).digest()) >> 1


def draw_as(worker: int, device: torch.device) -> None:
    """From now on this process draws the numbers of worker `worker`; worker 0 continues as it is.

    Called when training begins: until then all workers draw the same, so that they set up the same model.
    """
    if worker:
        for stream in streams_of(device):
            stream.state()
            stream.load(stream.of_worker(worker))


def states() -> list[Any]:
    """The states of all generators on the CPU."""
    return [stream.state() for stream in cpu_streams()]


def load(states: Sequence[Any]) -> None:
    """Continue from what `states` has returned, here or in another process."""
    for stream, state in zip(cpu_streams(), states, strict=True):
        stream.state()
        stream.load(state)


@contextmanager
def seeded(streams: Sequence[ProcessStream], seed: int) -> Iterator[None]:
    """In this block, draw from generators with this seed; then continue as before."""
    own = [stream.state() for stream in streams]
    try:
        for stream in streams:
            stream.load(stream.seeded(seed))
        yield
    finally:
        for stream, state in zip(streams, own, strict=True):
            stream.state()
            stream.load(state)
