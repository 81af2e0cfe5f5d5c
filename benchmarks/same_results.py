"""Whether a change of the code has changed any result: `python -m benchmarks.same_results --before COMMIT ...`.

Small cells (`same_results_set`), here and in the files of COMMIT: fits of all models, strategies, rules, dampings,
hosts, optimizers, codecs and local steps, of sparse rows, of virtual workers, and on two machines (processes that meet
over loopback); a search; a notebook with claims. Each is recorded as an ordinary run; then losses, other metrics,
weights, the state of optimizers and schedules, the traces of updates, the search's trials and the notebook's tables are
compared to the last bit. Read the lines with DIFFERENT: there must be none, else the exit code is 1. About 3 minutes
each on two quiet cores.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from benchmarks import same_results_fits
from benchmarks.common import parser
from benchmarks.same_results_set import CELLS

HERE: Final = Path(__file__).resolve().parents[1]
DEADLINE_S: Final = 1800.0  # of all fits in one checkout
WHAT: Final = ("updates", "epoch", "weights", "state", "trace", "trials", "tables")
Results = dict[str, dict[str, Any]]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--before", required=True, nargs="+", help="commits that gave the right results")
    options.add_argument("--only", default="", help="only cells whose name has this")
    given = options.parse_args()
    cells = {title: cell for title, cell in CELLS.items() if given.only in title}
    different = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        after = fitted(HERE, cells, folder / "here")
        for number, commit in enumerate(given.before):
            before = fitted(extract(commit, folder / f"files-{number}"), cells, folder / f"before-{number}")
            equal = [title for title in cells if same(title, before[title], after[title])]
            print(f"{len(equal)} of {len(cells)} the same as in {commit}, to the last bit", flush=True)
            different += len(cells) - len(equal)
    return 1 if different else 0


def extract(commit: str, path: Path) -> Path:
    """Write the files of `commit` into a folder outside git."""
    path.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=HERE, check=True, stdout=subprocess.PIPE, timeout=60)
    subprocess.run(["tar", "--extract", "--directory", str(path)], input=archive.stdout, check=True, timeout=60)
    return path


def fitted(checkout: Path, cells: Mapping[str, Any], folder: Path) -> Results:
    """The results of `same_results_fits` in a checkout, in a process and a workspace of its own."""
    workspace, out, cells_file = folder / "workspace", folder / "results.json", folder / "cells.json"
    workspace.mkdir(parents=True)
    cells_file.write_text(json.dumps(cells), encoding="utf-8")
    settings = {"SCALEBOOK_WORKSPACE": str(workspace), "XDG_STATE_HOME": str(folder / "state"), "OMP_NUM_THREADS": "1"}
    environment = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"} | settings
    log = folder / "log.txt"
    with log.open("w") as file:
        ended = subprocess.run(
            [sys.executable, same_results_fits.__file__, str(checkout), str(cells_file), str(workspace), str(out)],
            cwd=checkout, env=environment, stdout=file, stderr=file, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
    if ended.returncode:
        raise SystemExit(f"{checkout}: {log.read_text()[-2000:]}")
    results: Results = json.loads(out.read_text(encoding="utf-8"))
    for title, next_title in pairwise([*cells, ""]):
        if results[title]["status"]:
            output = log.read_text().partition(f"{title}\n")[2]
            print(output.partition(f"\n{next_title}\n")[0] if next_title else output, flush=True)
    return results


def same(title: str, old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether nothing differs, and both succeeded; prints a line."""
    if old["status"] or new["status"]:
        print(f"{title:52} failed: status {old['status']}, then {new['status']}")
        return False
    points = sorted(old["metrics"].keys() & new["metrics"].keys())  # which of a curve's are kept hangs on the clock
    different = [what for what in WHAT if old.get(what) != new.get(what)]
    different += [point for point in points if old["metrics"][point] != new["metrics"][point]]
    losses = [point for point in points if "loss" in point or "bits" in point]
    if "trials" in new:
        numbers = f"{len(new['trials'])} trials"
    elif "tables" in new:
        numbers = f"{len(new['tables'])} characters of text"
    else:
        traced = new["trace"][0]
        numbers = f"{new['updates']} updates, {len(losses)} losses of {len(points)} metrics, {traced} bytes of trace"
    print(f"{title:52} {'DIFFERENT: ' + ', '.join(different) if different else 'equal'}  ({numbers})", flush=True)
    return not different


if __name__ == "__main__":
    sys.exit(main())
