"""`make matrix`: the README's commands with each supported version of Python, in environments of their own.

pip chooses the build of torch (on Linux usually the CUDA build). To test another one, name the index that has it:
`make matrix TORCH_INDEX=URL`. A Python that is not installed is an error, not a skipped session.
"""

import os
from pathlib import Path

import nox

PYTHONS = ("3.11", "3.12", "3.13")

nox.needs_version = ">=2025.2"
nox.options.error_on_missing_interpreters = True
nox.options.default_venv_backend = "venv"


@nox.session(python=PYTHONS)
def matrix(session: nox.Session) -> None:
    """`make demo` and `make test`. What the tests do not show, that `make run` serves, the demo's commands show."""
    environment = Path(session.virtualenv.location)
    if index := os.environ.get("TORCH_INDEX"):
        session.install("torch<2.14", "--index-url", index)
    python = str(environment / "bin" / "python")
    for target in ("demo", "test"):
        session.run("make", target, f"VENV={environment}", f"PYTHON={python}", external=True)
    session.run(python, "-c", "import sys, torch; print('Python', sys.version.split()[0], 'torch', torch.__version__)")
