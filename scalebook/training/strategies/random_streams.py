"""Random numbers of which each virtual worker has its own: Python's, NumPy's and a GPU's. (torch's on the CPU are the
engine's affair.) What nobody draws from costs 11 us a turn."""

import ctypes
import random
from typing import Any

import numpy as np
import torch
from typing_extensions import override

from scalebook.training.ps.worker.end import RandomStream

_BITS = 624 * 4 + 4
"""Bytes of a Mersenne twister in NumPy: its numbers, and how many of them are used up."""


class PythonStream(RandomStream):
    """`random`."""

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
    """`numpy.random`'s global one. A state is its bits, and what is left of a pair of normal numbers, None: nothing.

    NumPy takes 50 us to give its state and to take another, so the bits are copied as they lie in memory where nothing
    is left of a pair, neither before nor after.
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
    """The one of a GPU."""

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
    """Those that a model on `device` may draw from."""
    streams: list[RandomStream] = [PythonStream(), NumpyStream()]
    return [*streams, CudaStream(device)] if device.type == "cuda" else streams


def _address() -> int:
    return int(np.random.get_bit_generator().ctypes.state_address)  # type: ignore[attr-defined]  # missing in its stubs


def _packed(state: Any) -> tuple[bytes, float | None]:
    twister = state["state"]
    bits = twister["key"].astype(np.uint32).tobytes() + int(twister["pos"]).to_bytes(4, "little")
    return bits, float(state["gauss"]) if state["has_gauss"] else None
