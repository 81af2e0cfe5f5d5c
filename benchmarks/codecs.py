"""What each codec costs and saves: encode and decode one real gradient of 2.7 MB, beside a copy of it in the same run.

`python -m benchmarks.codecs` (half a minute): the perceptron of `engine_task` (669,706 parameters), one thread, best of
the rounds, all codecs in turn in each. Read "of a copy": how fast encode and decode together are, compared with a copy
of the gradient. GB/s count the gradient's 2.7 MB once.
"""

import time
from collections.abc import Iterable
from typing import Final, NamedTuple

import torch
from torch import Tensor

from benchmarks.common import Others, parser, row
from benchmarks.engine_task import backward, perceptron, samples
from scalebook.training.engine.codecs.coder import Coder, Spec
from scalebook.training.engine.rules.codecs import Bf16, Codec, Fp16, Fp32, Int8, PowerSgd, Qsgd, RandomK, Sign, TopK

CODECS: Final[tuple[Codec, ...]] = (
    Bf16(), Bf16(error_feedback=True), Fp16(), Int8(error_feedback=False), Int8(), Sign(), Qsgd(), Qsgd(levels=7),
    TopK(error_feedback=False), TopK(), RandomK(), PowerSgd(), Fp32(zstd=1), Bf16(zstd=1),
)  # fmt: skip
GOALS: Final = {Bf16(): 0.5, Int8(error_feedback=False): 0.25, TopK(error_feedback=False): 0.1}
"""Least speed of encode and decode together, relative to a copy."""


class Cost(NamedTuple):
    """Seconds, best of the rounds, and bytes of a frame."""

    encode_s: float = float("inf")
    decode_s: float = float("inf")
    nbytes: int = 0


def measure(tensors: list[Tensor], codecs: Iterable[Codec], rounds: int) -> tuple[float, dict[Codec, Cost]]:
    """Seconds of a copy of all tensors, in one piece, and the cost of each codec."""
    specs = [Spec(tuple(tensor.shape), tensor.dtype) for tensor in tensors]
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    into, copy_s = torch.empty_like(flat), float("inf")
    coders = {codec: Coder(codec, specs) for codec in codecs}
    residuals = {codec: torch.zeros(coder.kept) if coder.kept else None for codec, coder in coders.items()}
    spare = {codec: torch.zeros(coder.kept) if coder.kept else None for codec, coder in coders.items()}
    best = dict.fromkeys(coders, Cost())
    for number in range(rounds):
        for _ in range(5):
            started = time.perf_counter()
            into.copy_(flat)
            copy_s = min(copy_s, time.perf_counter() - started)
        for codec, coder in coders.items():
            for _ in range(3):  # the first one brings everything into the cache
                started = time.perf_counter()
                frame, residual = coder.encode(tensors, residuals[codec], number, spare[codec])
                encoded = time.perf_counter()
                coder.decode(frame, into)
                decode_s, before = time.perf_counter() - encoded, best[codec]
                encode_s = min(before.encode_s, encoded - started)
                best[codec] = Cost(encode_s, min(before.decode_s, decode_s), frame.numel())
            if residual is not None:
                residuals[codec], spare[codec] = residual, residuals[codec]
    return copy_s, best


def main() -> None:
    """Print the table."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=60)
    rounds = options.parse_args().rounds
    torch.set_num_threads(1)
    others, model = Others(), perceptron()
    backward(model, *samples(0), 0)
    tensors = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    size = sum(tensor.nbytes for tensor in tensors)
    copy_s, costs = measure(tensors, CODECS, rounds)
    print(f"A copy of {size / 1e6:.2f} MB: {copy_s * 1e3:.3f} ms, {size / copy_s / 1e9:.1f} GB/s.\n")
    print(row("codec", "encode ms", "decode ms", "GB/s", "of a copy", "goal", "bytes", "times fewer"))
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for codec, cost in costs.items():
        seconds = cost.encode_s + cost.decode_s
        speeds = f"{size / seconds / 1e9:.2f}", f"{copy_s / seconds:.2f}", GOALS.get(codec, "")
        times = f"{cost.encode_s * 1e3:.3f}", f"{cost.decode_s * 1e3:.3f}"
        print(row(repr(codec), *times, *speeds, f"{cost.nbytes:,}", f"{size / cost.nbytes:.1f}"))
    print(f"\n{others.sentence()}")


if __name__ == "__main__":
    main()
