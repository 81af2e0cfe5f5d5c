"""An environment with torch and Lightning alone: links to their packages, and to those that they need."""

import os
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]


def make_bare(folder: Path) -> Path:
    """Fill `folder`, to be the only place where packages are found."""
    names, known = ["torch", "lightning"], set[str]()
    while names:
        name = re.sub(r"[-_.]+", "-", names.pop()).lower()
        if name in known:
            continue
        known.add(name)
        found = distribution(name)
        for part in {file.parts[0] for file in found.files or []} - {"..", "__pycache__"}:
            (folder / part).symlink_to(str(found.locate_file(part)))
        needed = [Requirement(line) for line in found.requires or []]
        names += [one.name for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    return folder


def run_bare(bare: Path, *arguments: str, timeout_s: float = 100.0) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, in the repository, without any other package."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment |= {"PYTHONPATH": f"{bare}{os.pathsep}{ROOT}"}
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip
