"""The commands of docs/how-to, as a new user gives them: `python -m benchmarks.cluster_first_run`, as root.

Two nodes, each a network namespace with an address, a home and a folder of its own, where Scalebook has never run.
Prints the seconds of each command: first AsyncPS by hand, then, if the extra `cluster` is installed, a notebook on a
Ray cluster. Exits with 1 if a command does not do what the page says.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from benchmarks.machine import Others
from scalebook.training.base.safe_path import environment, python
from scalebook.training.base.workspace import SETTINGS, Workspace
from scalebook.training.cluster.ray_core import installed
from scalebook.training.jobs.job_requests import all_jobs
from tests.cluster.namespaces import Namespaces, namespaces, why_not

WAIT_S: Final = 400.0
CONFIG: Final = """trainer: {strategy: AsyncPS, devices: 1, num_nodes: 2, max_epochs: 3}
model: ConvClassifier
data: Digits
optimizer: {class_path: Adam, init_args: {lr: 0.002}}
"""
NOTEBOOK: Final = Path(__file__).parents[1] / "notebooks" / "first-steps.md"
PORT: Final = 29500


class NewUser:
    """A user of a node that holds nothing of theirs but what is copied there."""

    def __init__(self, machines: Namespaces, number: int, home: Path) -> None:
        self.name, self.address, self.home = machines.names[number], machines.addresses[number], home
        (home / "work").mkdir(parents=True)

    @property
    def state(self) -> Path:
        return self.home / ".local" / "state" / "scalebook"

    def types(self, *words: str, **more: str) -> "subprocess.Popen[str]":
        """Run `scalebook WORDS` in their folder."""
        env = {
            key: value for key, value in environment().items() if not key.startswith(("XDG_", "SCALEBOOK_", "MLFLOW_"))
        }
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name, *python("-m", "scalebook", *words)], cwd=self.home / "work",
            env={**env, "HOME": str(self.home), **more}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip


def ended(process: "subprocess.Popen[str]", what: str, began: float) -> str:
    """Wait for a process to end well, and print its seconds; returns its output."""
    try:
        said, _ = process.communicate(timeout=WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
    print(f"{time.monotonic() - began:6.1f} s  {what}", flush=True)
    if process.returncode != 0:
        raise SystemExit(f"{what}: exit code {process.returncode}\n{said}")
    return said


def by_hand(first: NewUser, second: NewUser) -> None:
    """The parameter server: NODE_RANK, MASTER_ADDR, MASTER_PORT, and a key that is copied."""
    print("AsyncPS by hand, 3 epochs of ConvClassifier on Digits")
    for user in (first, second):
        (user.home / "work" / "x.yaml").write_text(CONFIG, encoding="utf-8")
    began = time.monotonic()
    meets = {"MASTER_ADDR": first.address, "MASTER_PORT": str(PORT)}
    one = first.types("fit", "-c", "x.yaml", NODE_RANK="0", **meets)
    while not (first.state / "machines-key").exists():
        if one.poll() is not None or time.monotonic() - began > WAIT_S:
            ended(one, "the first machine makes no key", began)
            raise SystemExit("it ended without a key")
        time.sleep(0.05)
    print(f"{time.monotonic() - began:6.1f} s  the first has made the key", flush=True)
    second.state.mkdir(mode=0o700, parents=True)
    shutil.copy2(first.state / "machines-key", second.state / "machines-key")  # what scp -p does
    joined = time.monotonic()
    two = second.types("fit", "-c", "x.yaml", NODE_RANK="1", **meets)
    ended(two, "the second: from its command to the end of training", joined)
    ended(one, "the first: from its command to the end", began)


def on_ray(first: NewUser, second: NewUser) -> None:
    """A head, a node that joins it, and three runs of a notebook."""
    print("Ray cluster, three runs of First steps (12 epochs of ConvClassifier on Digits each)")
    workspace = Workspace(first.home / "work")
    shutil.copy(NOTEBOOK, workspace.root)
    (workspace.root / SETTINGS).write_text('[cluster]\naddress = "auto"\nfiles = "copied"\n', encoding="utf-8")
    token_file = first.home / "token"
    try:
        began = time.monotonic()
        ended(first.types("cluster", "start", "--host", first.address, "--name", "first"), "cluster start", began)
        shutil.copy2(first.state / "cluster" / "token", token_file)
        joined = time.monotonic()
        words = ("cluster", "start", "--join", f"{first.address}:6379", "--token", str(token_file), "--name", "second")
        ended(second.types(*words), "cluster start --join", joined)
        run = time.monotonic()
        runs = ("notebook", "run", "first-steps.md", "--trust", "--cell", "classifier-single")
        ended(first.types(*runs), "notebook run: from the command to the table", run)
        where = Counter(started.machine for job in all_jobs(workspace) if (started := job.started()) is not None)
        begun = min(started.started for job in all_jobs(workspace) if (started := job.started()) is not None)
        wait = begun - (time.time() - (time.monotonic() - run))
        print(f"{wait:6.1f} s  of it until the first run began; by machine: {dict(where)}")
        if set(where) != {"first", "second"}:
            raise SystemExit("not both machines had runs")
    finally:
        for user in (second, first):
            user.types("cluster", "stop").communicate(timeout=WAIT_S)


def main() -> int:
    if missing := why_not():
        print(f"skipped: {missing}")
        return 0
    others = Others()
    for what in (by_hand, *([on_ray] if installed() else [])):
        with namespaces(2) as made, tempfile.TemporaryDirectory() as root:
            os.chmod(root, 0o700)
            what(*(NewUser(made, n, Path(root, str(n))) for n in (0, 1)))
    print(others.sentence())
    return 0


if __name__ == "__main__":
    sys.exit(main())
