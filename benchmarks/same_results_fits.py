"""Runs every cell of a file in a checkout of Scalebook, and writes the results: run by `same_results`.

    python same_results_fits.py CHECKOUT CELLS.json WORKSPACE OUT.json

A standalone file, so that it runs in any version: of the checkout it uses only a few commands (`fit -c`, `search run
-c`, `notebook run`), the tables of the store, the study's journal, and the checkpoint. Imports once, then forks for
each cell.
"""

import hashlib
import importlib
import json
import os
import re
import signal
import socket
import sqlite3
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

DEADLINE_S: Final = 120.0  # of one cell
SAMPLES: Final = "samples"  # at a step they are read between two of its batches, or after both: the last is compared
UNLIKE: Final = ("perf/", "worker_", "best/perf", "final/perf", "seconds", "ps/staleness_seconds", "system/", SAMPLES)
"""Prefixes of metrics that are times or depend on times, or describe the machine."""
OF_TWO: Final = ("train/", "final/train/", "best/train/", "ps/", "bytes")
"""Prefixes of metrics that also depend on which worker got which batch, and when."""
OF_CURVES: Final = ("train/", "bytes")
"""If an update has several batches, the clock decides which of them become points of these curves."""


def main() -> None:
    checkout, cells, workspace, out = (Path(argument).resolve() for argument in sys.argv[1:])
    sys.path.insert(0, str(checkout))
    rooms = (checkout / "training" / "cli" / "main.py").exists()  # version 0.1 has other modules
    command = importlib.import_module("scalebook.training.cli.main" if rooms else "scalebook.training.__main__")
    importlib.import_module("scalebook.training.cli.lightning_cli" if rooms else "scalebook.training.cli")  # long, once
    importlib.import_module("mlflow")
    origin = str(Path(str(command.__file__)).resolve())
    assert origin.startswith(f"{checkout}/"), f"{origin} is not of {checkout}"
    results = {}
    for number, (title, cell) in enumerate(json.loads(cells.read_text(encoding="utf-8")).items()):
        print(title, file=sys.stderr, flush=True)
        if isinstance(cell, str):
            results[title] = of_notebook(command.main, cell, workspace / f"{number}.md")
        else:
            file = workspace / f"{number}.yaml"
            file.write_text(json.dumps(cell), encoding="utf-8")  # JSON is YAML
            made = of_search if "space" in cell else of_fit
            results[title] = made(command.main, cell, file, workspace)
        out.write_text(json.dumps(results), encoding="utf-8")


def of_fit(main: Any, config: dict[str, Any], file: Path, workspace: Path) -> dict[str, Any]:
    """The results of a fit; one over several nodes runs as several processes here."""
    jobs = workspace / ".scalebook" / "jobs"
    before = set(jobs.glob("[!.]*"))
    status = in_children(main, ["fit", "-c", str(file)], environments(config["trainer"].get("num_nodes", 1), workspace))
    job = next(iter(set(jobs.glob("[!.]*")) - before), None)
    return {"status": status, **(result(job, workspace, unlike(config)) if job and not status else {})}


def environments(machines: int, workspace: Path) -> list[dict[str, str]]:
    """The environments of so many nodes, of which all but the first have a workspace of their own."""
    if machines == 1:
        return [{}]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
    here = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    others = [str(workspace / f"machine-{node}") for node in range(1, machines)]
    for one in others:
        Path(one).mkdir(exist_ok=True)
    own = [{}, *({"SCALEBOOK_WORKSPACE": one} for one in others)]
    return [{**here, "NODE_RANK": str(node), **more} for node, more in enumerate(own)]


def unlike(config: dict[str, Any]) -> tuple[str, ...]:
    """Prefixes of metrics that differ between two runs of one config."""
    trainer, strategy = config["trainer"], config["trainer"]["strategy"]
    coarse = OF_CURVES if trainer.get("accumulate_grad_batches", 1) > 1 else ()
    if not isinstance(strategy, dict) or not strategy["class_path"].endswith("AsyncPS"):
        return UNLIKE + coarse
    arguments = strategy["init_args"]
    if arguments["workers"] * trainer.get("num_nodes", 1) > 1 and arguments.get("host") != "virtual":
        return UNLIKE + OF_TWO
    plain = (
        arguments.get("host") != "virtual"
        and arguments["rule"] == {"class_path": "Async", "init_args": {}}
        and "local" not in arguments
    )
    return UNLIKE + (coarse if plain else OF_CURVES)


def of_search(main: Any, _body: dict[str, Any], file: Path, workspace: Path) -> dict[str, Any]:
    """The trials of a search: their points and results."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    folders = workspace / ".scalebook" / "studies"
    before = set(folders.glob("[!.]*"))
    status = in_children(main, ["search", "run", "-c", str(file)])
    (folder,) = set(folders.glob("[!.]*")) - before
    journal = json.loads((folder / "search.json").read_text(encoding="utf-8"))["storage"].removeprefix("journal:")
    storage = JournalStorage(JournalFileBackend(journal))
    (study,) = storage.get_all_studies()
    trials = [[one.number, one.state.name, one.params, one.values] for one in storage.get_all_trials(study._study_id)]
    return {"status": status, "trials": trials, "metrics": {}}


def of_notebook(main: Any, text: str, file: Path) -> dict[str, Any]:
    """A notebook's text with its tables, without the ids of runs, which are random."""
    file.write_text(text, encoding="utf-8")
    status = in_children(main, ["notebook", "run", str(file)])
    tables = re.sub(r"results: runs \w+, table \w+", "results", file.read_text(encoding="utf-8"))
    return {"status": status, "tables": tables, "metrics": {}}


def in_children(main: Any, argv: list[str], environments: Sequence[Mapping[str, str]] = ({},)) -> int:
    """Exit status of `main(argv)` in a fork with each of the environments, the first that is not 0; -9 if it was killed
    at the deadline."""
    children = [_forked(main, argv, one) for one in environments]
    until, ends = time.monotonic() + DEADLINE_S, []
    for child in children:
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > until:
                os.killpg(child, signal.SIGKILL)
                ended = os.waitpid(child, 0)
                break
            time.sleep(0.02)
        ends.append(os.waitstatus_to_exitcode(ended[1]))
    return next(filter(None, ends), 0)


def _forked(main: Any, argv: list[str], environment: Mapping[str, str]) -> int:
    child = os.fork()
    if not child:
        os.setsid()
        status = 70
        try:
            os.environ.update(environment)
            status = main(argv)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return child


def result(job: Path, workspace: Path, left_out: tuple[str, ...]) -> dict[str, Any]:
    """The results of a run that must be the same, tensors and traces as hashes, and how many went into these."""
    import torch

    checkpoint = torch.load(job / "checkpoints" / "last.ckpt", weights_only=True)
    state = {"optimizers": checkpoint["optimizer_states"], "schedules": checkpoint["lr_schedulers"]}
    counts = {"updates": checkpoint["global_step"], "epoch": checkpoint["epoch"]}
    metrics = recorded(workspace / ".scalebook" / "mlflow.db", job.name, left_out)
    files = sorted((job / "trace").glob("*"))
    trace = {path.name.partition("-")[2]: path.read_bytes() for path in files}  # `section-0-...` before November 28
    return {
        **counts,
        "metrics": {f"{key} at {step}": value.hex() for key, step, value in metrics},
        "weights": [len(checkpoint["state_dict"]), digest(checkpoint["state_dict"])],
        "state": digest(state),
        "trace": [sum(map(len, trace.values())), digest(trace)],  # bytes
    }


def recorded(store: Path, run: str, left_out: tuple[str, ...]) -> list[tuple[str, int, float]]:
    """A run's metrics, by key and step, without those in `left_out`. For these only the last sample counts, since the
    clock decides which points of a curve are kept."""
    with sqlite3.connect(store) as database:
        rows = database.execute("select key, step, value from metrics where run_uuid = ? order by 1, 2, 3", (run,))
        compared = [row for row in rows if not row[0].startswith(left_out)]
        last = "select key, step, value from metrics where run_uuid = ? and key = ? order by value desc limit 1"
        return [*compared, *database.execute(last, (run, SAMPLES))]


def digest(content: Any) -> str:
    """A hash of tensors' bytes, numbers and texts, anywhere in lists and mappings."""
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
