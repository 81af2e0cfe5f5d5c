"""The environment variables of jobs and searches: those of whoever submitted them, wherever the supervisor was started.

They may be secrets. So they are in a file of the folder that only this user can read, which is signed, never copied to
other nodes, and deleted when the job has started, or the search has ended. What a process reads while it starts or
imports libraries has no effect in a fork of the fork server; `read_too_early` names what a job must not miss so.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from scalebook.training.base import node_rank, safe_path, trust
from scalebook.training.base.files import put_secret, safe_reading
from scalebook.training.tracking import SPOOL

FILE: Final = ".environment"
DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "OPENBLAS_NUM_THREADS": "1",
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "1",
    }
)
"""What jobs get unless the user has set it. numpy and pyarrow (through mlflow) start threads when they are imported,
unless the first two say otherwise."""
THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Set by the config's `threads`."""
GPUS: Final = "CUDA_VISIBLE_DEVICES"
"""Set by the queue, which assigns GPUs."""
READ_AT_START: Final = re.compile(
    "(LD_|PYTHON|MALLOC_|GLIBC_|LC_|LANG"  # the linker, Python, the C library
    "|OMP_|GOMP_|KMP_|MKL_|OPENBLAS_|GOTO_|BLIS_|NVPL_|NPY_|NUMPY_|NUMEXPR_|DNNL_|ONEDNN_|JE_|ARROW_"
    "|ATEN_|AOT|TORCH|PYTORCH|PT2_|FX_|INDUCTOR_|KINETO_|TRITON_|CUDA_|CUBLAS|CUDNN|CUT|NCCL_|NVIDIA_"
    "|LIGHTNING_|MLFLOW_(CONFIGURE_)?LOGGING|OTEL_|PANDAS_|SCIPY_|SYMPY_|MPMATH_|MPL|MATPLOTLIB|PYDANTIC_|PROTOCOL_)"
)
"""How the names of variables begin that are read once: by a process while it starts, or by what the fork server
imports."""


def submitted() -> dict[str, str]:
    """The variables of this process that a job submitted by it gets."""
    variables = safe_path.environment()
    node_rank.forget_launchers(variables)
    variables.pop(SPOOL, None)
    return variables


def keep_environment(folder: Path, name: str) -> None:
    """Write the variables of this process into the folder of the job or search `name`."""
    variables = submitted()
    content = {"variables": variables, "signature": trust.sealed([name, FILE, variables])}
    put_secret(folder / FILE, json.dumps(content).encode())


def kept_environment(folder: Path) -> dict[str, str] | None:
    """The variables in the folder of a job or search.

    None if there are none: an earlier version wrote the folder; or if another user did.
    """
    try:
        content = json.loads(safe_reading.whole(folder / FILE))
        variables = {str(name): str(value) for name, value in content["variables"].items()}
        ours = trust.sealed([folder.name, FILE, variables]) == content["signature"]
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return None
    return variables if ours else None


def forget_environment(folder: Path) -> None:
    (folder / FILE).unlink(missing_ok=True)


def has_environment(folder: Path) -> bool:
    return (folder / FILE).exists()


def read_too_early(wanted: Mapping[str, str], started: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The variables that a process which has imported everything, and began with those of `started`, read too early to
    have those of `wanted`. What a library has set since (`now`) is in `wanted` too, if the submitter has imported it.
    """
    names = {name for name in {*wanted, *started} if READ_AT_START.match(name)} - {*THREADS, GPUS}
    return sorted(name for name in names if wanted.get(name) not in (started.get(name), now.get(name)))


def replace_environment(wanted: Mapping[str, str], started: Mapping[str, str]) -> None:
    """Give this process the variables `wanted`, and what libraries have set since it began with `started`."""
    added = {name: value for name, value in os.environ.items() if started.get(name) != value}
    os.environ.clear()
    os.environ.update({**added, **wanted})
