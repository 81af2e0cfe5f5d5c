"""What a trial takes beyond its training, here and on another node: `python -m benchmarks.cluster_trials`.

A search of short trials, `--trials` for each of two nodes: by the local executor with two cores, then by two raylets of
one Ray cluster on this machine, of one core each, where nothing of the workspace lies. Prints medians of the time
between the end of one trial's training and the first step of the next on the same device: until its process may begin,
to build and to end, and from its result to the next one's process. Exits with 1 if a trial was lost or run twice. Needs
the extra `cluster`.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from benchmarks import waiting
from benchmarks.cluster_searches import HOSTS, command
from benchmarks.machine import machine
from benchmarks.search import config
from benchmarks.search_audit import audit
from scalebook.training.base.processes import alive
from scalebook.training.base.safe_path import environment, python
from scalebook.training.base.trust import trust
from scalebook.training.base.workspace import SETTINGS, Workspace
from scalebook.training.cluster import ray_daemons
from scalebook.training.cluster.cluster_spool import ClusterSpool
from scalebook.training.experiments.catalogue import describe
from scalebook.training.jobs import job_requests, supervisor_handle
from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.jobs.supervisor_handle import hold_supervisor
from scalebook.training.search import search_folder as searches
from scalebook.training.search import search_requests
from scalebook.training.search.study.study_reader import read_study

until = partial(waiting.until, deadline_s=1800.0)
PARTS: Final = ("until it may begin", "building and ending", "from its result to the next process", "all")
Spans = dict[str, list[list[float]]]
"""By device, of each trial but the first: `PARTS`, s."""


def spans(jobs: Sequence[JobFolder]) -> Spans:
    """The spans of trials that follow each other on a device."""
    by_device = defaultdict(list)
    for job in jobs:
        started, result, progress = job.started(), job.result(), job.progress()
        assert started is not None
        assert result is not None
        assert progress is not None
        may_begin = (job.path / "process.json").stat().st_mtime
        times = (started.started, may_begin, result.ended, progress.seconds)
        by_device[f"{started.machine or 'here'} {started.cores}"].append(times)
    parts_by_device: Spans = {}
    for device, times_ in sorted(by_device.items()):
        ordered = sorted(times_)
        parts_by_device[device] = []
        for (_, _, before, _), (began, may_begin, ended, trained) in pairwise(ordered):
            parts = [max(0.0, may_begin - began), ended - max(began, may_begin) - trained, began - before]
            parts_by_device[device].append([*parts, sum(parts)])
    return parts_by_device


def searched(workspace: Workspace, trials: int, epochs: int) -> tuple[Spans, list[str]]:
    """Run a search with the whole queue; returns the spans of its trials, and what went wrong."""
    description = describe(workspace)
    body: dict[str, Any] = {
        "config": config(epochs), "objective": "val/loss", "trials": trials,
        "space": {"learning_rate": {"log_uniform": [0.001, 0.05]}},
    }  # fmt: skip
    with hold_supervisor(workspace):
        supervisor_handle.ensure(workspace)
        folder = search_requests.start(workspace, body, None, name="short trials", description=description)
        until(lambda: folder.state() in searches.ENDED, "the search")
    request = folder.request()
    wrong = audit(folder, read_study(request.storage, request.study, folder.spec(description)))
    jobs = [job for job in job_requests.all_jobs(workspace) if job.request().trial is not None]
    wrong += [f"{len(jobs)} runs of {trials} trials"] if len(jobs) != trials else []
    until(lambda: supervisor_handle.running(workspace) is None, "the supervisor to leave")
    return spans(jobs), wrong


def show(what: str, spans: Mapping[str, list[list[float]]]) -> None:
    for device, rows in spans.items():
        medians = [statistics.median(column) for column in zip(*rows, strict=True)]
        words = ", ".join(f"{part} {median:.3f}" for part, median in zip(PARTS, medians, strict=True))
        print(f"{what}, {device}, {len(rows)} trials, medians, s: {words}", flush=True)


def on_cluster(root: Path, trials: int, epochs: int) -> list[str]:
    """The same over two nodes; returns what went wrong."""
    a, b, workspace = root / "a", root / "b", Workspace(root / "clustered").create()
    os.environ["XDG_STATE_HOME"] = str(a)
    try:
        command(a, "start", "--host", HOSTS[0], "--port", "0", "--name", "a", "--cores", "1")
        node, token = ray_daemons.here(), a / "scalebook" / "cluster" / "token"
        assert node is not None
        joins = ("--join", node.address, "--host", HOSTS[1], "--name", "b", "--cores", "1", "--token", str(token))
        command(b, "start", *joins)
        (workspace.root / SETTINGS).write_text('[cluster]\naddress = "auto"\nfiles = "copied"\n', encoding="utf-8")
        trust(workspace)
        spans, wrong = searched(Workspace(workspace.root), trials, epochs)
        show("Ray", spans)
        daemon = ClusterSpool(workspace).machines()
        until(lambda: daemon is None or not alive(daemon.daemon), "the courier to leave")
        return wrong
    finally:
        for home in (b, a):
            stopping = environment(XDG_STATE_HOME=str(home))
            subprocess.run(python("-m", "scalebook", "cluster", "stop"), env=stopping, check=False, timeout=120)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster_trials", description=__doc__)
    parser.add_argument("--trials", type=int, default=35, help="on each of two machines")
    parser.add_argument("--epochs", type=int, default=10)
    options: Any = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        spans, wrong = searched(Workspace(root / "local").create(), 2 * options.trials, options.epochs)
        show("local", spans)
        wrong += on_cluster(root, 2 * options.trials, options.epochs)
    print(wrong or "no trial was lost, none run twice")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
