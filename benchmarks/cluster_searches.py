"""A search over two nodes of a Ray cluster, one killed in the middle: `python -m benchmarks.cluster_searches`.

Two raylets of one cluster on this machine stand for the nodes; SIGKILL of one with everything on it stands for the
loss. 24 short trials: none may be lost, and no finished one may run again. Needs the extra `cluster`. Exits with 1 if
anything is not as promised.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from benchmarks.common import machine
from benchmarks.search_audit import audit, is_recorded
from benchmarks.search_drills import BODY, records_of, until
from scalebook.training.base.safe_path import environment, python
from scalebook.training.base.trust import trust
from scalebook.training.base.workspace import SETTINGS, Workspace
from scalebook.training.cluster import ray_daemons
from scalebook.training.cluster.cluster_spool import ClusterSpool
from scalebook.training.experiments.catalogue import describe
from scalebook.training.jobs import job_requests, supervisor_handle
from scalebook.training.jobs.process import alive, descendants, send
from scalebook.training.search import search_folder as searches
from scalebook.training.search import search_requests

TRIALS: Final = 24
HOSTS: Final = ("127.0.0.2", "127.0.0.3")


def command(home: Path, *words: str) -> None:
    """Run `scalebook cluster` on one of the nodes, whose user's home is `home`."""
    env = environment(XDG_STATE_HOME=str(home))
    subprocess.run(python("-m", "scalebook", "cluster", *words), env=env, check=True, timeout=180)


def main() -> int:
    print(machine())
    with tempfile.TemporaryDirectory() as root:
        a, b, workspace = Path(root, "a"), Path(root, "b"), Workspace(Path(root, "notebooks").resolve())
        os.environ["XDG_STATE_HOME"] = str(a)
        try:
            command(a, "start", "--host", HOSTS[0], "--port", "0", "--name", "a")
            node, token = ray_daemons.here(), a / "scalebook" / "cluster" / "token"
            assert node is not None
            command(b, "start", "--join", node.address, "--host", HOSTS[1], "--name", "b", "--token", str(token))
            workspace.create()
            (workspace.root / SETTINGS).write_text('[cluster]\naddress = "auto"\nfiles = "copied"\n', encoding="utf-8")
            trust(workspace)
            wrong = drill(Workspace(workspace.root), b)
            until(lambda: supervisor_handle.running(workspace) is None, "the supervisor to leave")
            machines = ClusterSpool(workspace).machines()
            assert machines is not None
            until(lambda: not alive(machines.daemon), "the courier to leave")
        finally:
            for home in (b, a):
                subprocess.run(
                    python("-m", "scalebook", "cluster", "stop"), env=environment(XDG_STATE_HOME=str(home)),
                    check=False, timeout=120,
                )  # fmt: skip
    print(f"{TRIALS} trials over two machines, one of them killed: {wrong or 'as promised'}")
    return 1 if wrong else 0


def drill(workspace: Workspace, home: Path) -> list[str]:
    """Run the search, and kill the node of `home` after some trials have finished; returns what went wrong."""
    description = describe(workspace)
    body: dict[str, Any] = {**BODY, "trials": TRIALS}
    folder = search_requests.start(workspace, body, None, name="over two machines", description=description)
    until(lambda: _finished(records_of(folder, description)) >= TRIALS // 4, "trials to finish")
    until(lambda: "b" in _running(workspace), "a trial on b")
    before = {one.number: one.values for one in records_of(folder, description) if one.state == "finished"}
    os.environ["XDG_STATE_HOME"], mine = str(home), os.environ["XDG_STATE_HOME"]
    node = ray_daemons.here()
    os.environ["XDG_STATE_HOME"] = mine
    assert node is not None
    for process in (node.process, *descendants(node.process)):
        send(process, signal.SIGKILL)
    killed = time.monotonic()
    print(f"b is killed after {len(before)} trials; on it: {_running(workspace)['b']}", flush=True)
    until(lambda: not _running(workspace)["b"], "its jobs to be given up")
    print(f"noticed after {time.monotonic() - killed:.1f} s", flush=True)
    until(lambda: folder.state() in searches.ENDED, "the search to end")
    until(lambda: is_recorded(workspace), "MLflow to be told of runs that died")
    records = records_of(folder, description)
    where = Counter(
        started.machine for job in job_requests.all_jobs(workspace) if (started := job.started()) is not None
    )
    ended = Counter(
        result.why for job in job_requests.all_jobs(workspace) if (result := job.result()) and result.failure
    )
    print(f"ended {time.monotonic() - killed:.1f} s later; runs by machine {dict(where)}; {dict(ended)}", flush=True)
    wrong = audit(folder, records)
    wrong += [f"trial {number} changed" for number, values in before.items() if records[number].values != values]
    by_trial = Counter(
        (request.trial.number, request.seed)
        for job in job_requests.all_jobs(workspace)
        if (request := job.request()).trial is not None and (result := job.result()) and result.status == "finished"
    )
    wrong += [f"trial {number} was run {times} times" for (number, _), times in by_trial.items() if times > 1]
    done = sum(1 for one in records if one.state in ("finished", "pruned", "infeasible"))
    return [*wrong, *([] if done == len(records) == TRIALS else [f"{done} of {len(records)} trials ended well"])]


def _finished(records: Any) -> int:
    return sum(1 for one in records if one.state == "finished")


def _running(workspace: Workspace) -> "Counter[str]":
    """Running jobs by node."""
    return Counter(
        started.machine
        for job in job_requests.open_jobs(workspace)
        if job.state() in ("running", "stopping") and (started := job.started()) is not None
    )


if __name__ == "__main__":
    sys.exit(main())
