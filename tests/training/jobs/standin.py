"""A runner without torch: what a job's process does here is told by its `config.yaml`, which is JSON."""

import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from scalebook.training.jobs.job_folder import JobFolder, Progress, Result


def run(folder: Path) -> int:
    """Keys: seconds, part_seconds (of a part), end (finish, crash, exit, silent), deaf (to stop), stubborn (to
    SIGTERM), child, frozen, meeting, reads (a file), ledger (a file that says who began and who came to the end,
    whatever becomes of the job's folder)."""
    job = JobFolder(folder)
    told = json.loads(job.config.read_text(encoding="utf-8"))
    _note(told, "began", folder)
    if told.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if told.get("child"):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print(f"child {child.pid}", flush=True)
    if told.get("devices"):
        print(f"affinity {sorted(os.sched_getaffinity(0))} gpus {os.environ['CUDA_VISIBLE_DEVICES']}", flush=True)
        print(f"cwd {os.getcwd()} input {sys.stdin.read()!r} session {os.getsid(0) == os.getpid()}", flush=True)
        print(f"open {sorted(int(name) for name in os.listdir('/proc/self/fd'))[:-1]}", flush=True)
    if told.get("variables"):
        print(f"variables {json.dumps({name: os.environ.get(name) for name in told['variables']})}", flush=True)
        print(f"hashes {hash('hash')} safe {sys.flags.safe_path}", flush=True)
    if told.get("reads"):
        print(f"read {Path(told['reads']).read_text(encoding='utf-8')!r}", flush=True)
    if told.get("meeting"):
        key = Path(os.environ["SCALEBOOK_KEY_FILE"])
        facts = {"key": hashlib.sha256(key.read_bytes()).hexdigest(), "mode": oct(stat.S_IMODE(key.stat().st_mode))}
        names = ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "SCALEBOOK_KEY_FILE")
        print(f"meeting {json.dumps({**facts, **{name: os.environ[name] for name in names}})}", flush=True)
    began = time.monotonic()
    if job.request().part and "part_seconds" in told:
        told["seconds"] = told["part_seconds"]
    while (passed := time.monotonic() - began) < told.get("seconds", 0.0):
        if not told.get("frozen"):
            fraction = passed / told["seconds"]
            job.write(
                Progress(time.time(), "training", int(passed * 100), 0, passed, 0, fraction, told["seconds"] - passed)
            )
        if job.stop_file.exists() and not told.get("deaf"):
            job.write(Result("stopped", time.time(), cause="stopped on request"))
            return 0
        time.sleep(0.02)
    _note(told, "ended", folder)
    return _end(job, told.get("end", "finish"))


def _note(told: dict[str, Any], what: str, folder: Path) -> None:
    if ledger := told.get("ledger"):
        with open(ledger, "a", encoding="utf-8") as file:
            file.write(f"{what} {folder.name} {os.getpid()}\n")


def _end(job: JobFolder, how: str) -> int:
    if how == "crash":
        raise RuntimeError("the stand-in was told to crash")
    if how == "exit":
        raise SystemExit(7)
    if how == "finish":
        job.write(Result("finished", time.time()))
    return 0
