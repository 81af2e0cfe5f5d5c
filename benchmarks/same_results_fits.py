"""Fits every config of a file in a checkout of Scalebook, and writes down what came out: run by `same_results`.

    python same_results_fits.py CHECKOUT CONFIGS.json WORKSPACE OUT.json

A file by itself, which knows of the checkout only `fit -c FILE`, the store's tables, and the checkpoint: so it runs in
any version. Imports once, then forks for each config.
"""

import hashlib
import importlib
import json
import os
import signal
import sqlite3
import struct
import sys
import time
from pathlib import Path
from typing import Any, Final

DEADLINE_S: Final = 120.0  # of one fit
SAMPLES: Final = "samples"  # at a step they are read between two of its batches, or after both: the last is compared
UNLIKE: Final = ("perf/", "worker_", "best/perf", "final/perf", "seconds", "ps/staleness_seconds", SAMPLES)
"""How metrics begin that are times or hang on them."""
OF_TWO: Final = ("train/", "final/train/", "best/train/", "ps/")
"""And what hangs on which worker was given which batch."""


def main() -> None:
    checkout, configs, workspace, out = (Path(argument).resolve() for argument in sys.argv[1:])
    sys.path.insert(0, str(checkout))
    name = "scalebook.training" if (checkout / "scalebook" / "__init__.py").exists() else "training"
    command = importlib.import_module(f"{name}.__main__")
    importlib.import_module(f"{name}.cli")  # what takes long, once
    importlib.import_module("mlflow")
    origin = str(Path(str(command.__file__)).resolve())
    assert origin.startswith(f"{checkout}/"), f"{origin} is not of {checkout}"
    results = {}
    for number, (title, config) in enumerate(json.loads(configs.read_text(encoding="utf-8")).items()):
        file = workspace / f"{number}.yaml"
        file.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
        jobs = workspace / ".scalebook" / "jobs"
        before = set(jobs.glob("[!.]*"))
        print(title, file=sys.stderr, flush=True)
        status = in_a_child(command.main, ["fit", "-c", str(file)])
        job = next(iter(set(jobs.glob("[!.]*")) - before), None)
        several = config["trainer"]["strategy"] != "ddp" and _workers(config) > 1
        results[title] = {"status": status, **(result(job, workspace, several) if job else {})}
        out.write_text(json.dumps(results), encoding="utf-8")


def _workers(config: dict[str, Any]) -> int:
    strategy = config["trainer"]["strategy"]
    return int(strategy["init_args"]["workers"]) if isinstance(strategy, dict) else 1


def in_a_child(main: Any, argv: list[str]) -> int:
    """Exit status of `main(argv)` in a fork; -9 where it was ended at the deadline."""
    child = os.fork()
    if not child:
        os.setsid()
        status = 70
        try:
            status = main(argv)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    until = time.monotonic() + DEADLINE_S
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > until:
            os.killpg(child, signal.SIGKILL)
            ended = os.waitpid(child, 0)
            break
        time.sleep(0.02)
    return os.waitstatus_to_exitcode(ended[1])


def result(job: Path, workspace: Path, several: bool) -> dict[str, Any]:
    """What a run leaves that must be the same, tensors and traces as hashes; and how many went into these."""
    import torch

    checkpoint = torch.load(job / "checkpoints" / "last.ckpt", weights_only=True)
    state = {"optimizers": checkpoint["optimizer_states"], "schedules": checkpoint["lr_schedulers"]}
    counts = {"updates": checkpoint["global_step"], "epoch": checkpoint["epoch"]}
    metrics = recorded(workspace / ".scalebook" / "mlflow.db", job.name, several)
    trace = {path.name: path.read_bytes() for path in sorted((job / "trace").glob("*"))}
    return {
        **counts,
        "metrics": {f"{key} at {step}": value.hex() for key, step, value in metrics},
        "weights": [len(checkpoint["state_dict"]), digest(checkpoint["state_dict"])],
        "state": digest(state),
        "trace": [sum(map(len, trace.values())), digest(trace)],  # bytes
    }


def recorded(store: Path, run: str, several: bool) -> list[tuple[str, int, float]]:
    """A run's metrics, by key and step. Which of a curve's points are kept hangs on the clock."""
    unlike = UNLIKE + (OF_TWO if several else ())
    with sqlite3.connect(store) as database:
        rows = database.execute("select key, step, value from metrics where run_uuid = ? order by 1, 2, 3", (run,))
        kept = [row for row in rows if not row[0].startswith(unlike)]
        last = "select key, step, value from metrics where run_uuid = ? and key = ? order by value desc limit 1"
        return [*kept, *database.execute(last, (run, SAMPLES))]


def digest(content: Any) -> str:
    """Of tensors' bytes, numbers and texts, wherever they are in lists and mappings."""
    import torch

    hash_ = hashlib.sha256()

    def add(part_: Any) -> None:
        if isinstance(part_, torch.Tensor):
            hash_.update(f"{part_.dtype}{list(part_.shape)}".encode())
            hash_.update(part_.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        elif isinstance(part_, dict):
            for key in sorted(part_, key=str):
                hash_.update(f"{key}:".encode())
                add(part_[key])
        elif isinstance(part_, list | tuple):
            hash_.update(f"[{len(part_)}]".encode())
            for part in part_:
                add(part)
        elif isinstance(part_, float):
            hash_.update(struct.pack("<d", part_))
        else:
            hash_.update(part_ if isinstance(part_, bytes) else repr(part_).encode())

    add(content)
    return hash_.hexdigest()[:16]


if __name__ == "__main__":
    main()
