"""`python -m tests.fuzz [--mutants N] [--seed S] [--target NAME]`: what many mutants found; 1 if any."""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.catalogue import describe
from scalebook.training.tracking.run_start import open_store
from tests.fuzz.targets import TARGETS, Finding, tried


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--mutants", type=int, default=3000, help="in all, shared out to the targets")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", choices=TARGETS, action="append", help="only this one; repeatable")
    parser.add_argument("--folder", type=Path, help="a workspace to use again: it has its store and description")
    told = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="scalebook-fuzz-") as folder:
        workspace = prepared(told.folder or Path(folder))
        found = fuzz(workspace, told.target or list(TARGETS), told.mutants, told.seed)
    counts = Counter(one.target for one in found)
    took = time.monotonic() - begun
    print(f"{told.mutants} mutants of seed {told.seed}, {took:.0f} s: {len(found)} findings {dict(counts)}")
    return 1 if found else 0


def prepared(root: Path) -> Workspace:
    """A workspace with a store and a description, found by every command of this process."""
    os.environ["SCALEBOOK_WORKSPACE"] = str(root)
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    workspace = Workspace(root).create()
    describe(workspace)
    open_store(workspace)
    return workspace


def fuzz(workspace: Workspace, targets: list[str], mutants: int, seed: int) -> list[Finding]:
    """`mutants` in all, the same number against each target."""
    tries = ((target, number) for number in range(-(-mutants // len(targets))) for target in targets)
    found = []
    for target, number in tries:
        if (one := tried(target, number, seed, workspace)) is not None:
            found.append(one)
            print(f"--- {target} {number}: {one.what[-1500:]}\n{one.made[-600:]!r}\n", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
