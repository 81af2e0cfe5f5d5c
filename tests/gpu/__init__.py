"""What only a machine with a GPU can show: `python -m tests.gpu` there, `--device cpu` anywhere else.

Needs torch and Lightning, nothing else, and no network. (`tests/gpu/test_gpu_suite.py` holds both.)
"""

from typing import Final

POINTS: Final = {
    1: "big parameters are never torn",
    2: "the parent of forks is clean",
    3: "a warm process, forked, finds its GPU",
    4: "computing is booked as computing",
    5: "cuBLAS out of memory; pinned bytes",
    6: "virtual workers",
    7: "codecs, local steps, clipping, optimizers",
    8: "compiled, channels last, pinned loader, killed",
    9: "a full GPU, many fits",
    10: "finders, the largest batch",
    11: "several GPUs",
    12: "figures: push and pull against copies",
}
"""What the checks hold beside the first ones; each names its own, and point 12 is `benchmarks/gpu.py`."""
