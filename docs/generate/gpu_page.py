"""Results on GPUs as a page: `python -m docs.generate.gpu_page [FILE ...]` writes docs/benchmarks/gpu.md.

The files given, written by `make gpu`, are stored in docs/figures/gpu, one for each kind of GPU; the page shows all
of them.
"""

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu import table

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = ROOT / "docs" / "figures" / "gpu"
PAGE: Final = ROOT / "docs" / "benchmarks" / "gpu.md"
NOT_MEASURED: Final = "not measured"
EMPTY: Final = re.compile(r"(?:^[^|\n]+:\n\n)?^\|.*\n\|[-:|]+\|(?:\n(?!\|)|\Z)", re.M)
"""A table without rows, and the line that introduces it."""
RAISED: Final = re.compile(r"^(?:\w+Error: )+")
HEAD: Final = """# On a GPU

This page shows what `make gpu` checked and measured on machines with a GPU. `python -m docs.generate.gpu_page gpu.json`
writes this page.
"""
NOTHING: Final = """
**Nothing was measured yet:** no GPU has run this version. On CPUs the same checks pass, except those of CUDA
(`python -m tests.gpu --device cpu`).
"""
FOUND: Final = """
## Findings on one H200

- Copying 100 MB from the GPU to the host and back takes 3.7 ms. A push with a pull takes 6.9 ms: 3.7 ms for copying and
  about 3 ms for the update on 16 cores. With one shard, eight workers together make half as many pushes per second as
  one worker, because they share the cores. With eight server processes, eight workers make as many pushes per second as
  one worker.
- When four workers train a small classifier on one GPU, each step takes 1.09 times as long as with one worker.
- If a worker that fills the GPU's memory is killed, all of this memory is freed. Deaths are reported after 0.2 s.
- With biases before batch normalisation and Adam, parameters differ by 1.4e-2 from a plain Trainer's after 16 steps (on
  a CPU, by 0): the gradients of these biases are only rounding errors, but Adam scales them up.
"""
NOT_BUILT: Final = """
## Not built

Shards on GPUs, pulls on a separate stream, and codecs on the GPU other than `bf16` and `fp16` are not implemented.
[Engine memory](../design/engine-memory.md) explains why.
"""


def page(results: Sequence[dict[str, Any]]) -> str:
    """The page with the results of each kind of GPU, newest first."""
    newest = sorted(results, key=lambda result: str(result["date"]), reverse=True)
    parts = [section(result) for result in newest] or [NOTHING]
    return f"{HEAD}{''.join(parts)}{FOUND}{NOT_BUILT}"


def section(result: dict[str, Any]) -> str:
    """The section of one kind of GPU."""
    checks = result["checks"]
    counts = [f"{sum(one['status'] == s for one in checks)} {s}" for s in ("passed", "failed", "skipped")]
    lines = [
        "", f"## {result['gpus']} x {result['device']}, {result['date']}", "",
        f"Driver {result['driver']}, torch {result['torch']}, {result['cores']} cores. {', '.join(counts)}.", "",
    ]  # fmt: skip
    failed = [one for one in checks if one["status"] == "failed"]
    lines += [f"- *{one['name']}* failed: {RAISED.sub('', one['told']).partition('. ')[0]}." for one in failed]
    if few := [f"*{one['name']}*" for one in checks if one["status"] == "skipped"]:
        lines.append(f"- Skipped, because there were too few GPUs: {'; '.join(few)}.")
    if "figures" in result:
        rows = table(result["figures"]).splitlines()
        missing = sum(NOT_MEASURED in row for row in rows)
        lines += ["", EMPTY.sub("", "\n".join(row for row in rows if NOT_MEASURED not in row)).rstrip()]
        lines += ["", f"{missing} further figures were not measured, because no time was left."] if missing else []
    else:
        lines += ["", "No figures were measured."]
    return "\n".join(lines) + "\n"


def keep(path: Path, folder: Path = KEPT) -> Path:
    """Store a result beside the others, in place of an older one of that GPU; of each check the first line, without
    tracebacks and logs. ValueError for a result without a GPU."""
    result = json.loads(path.read_text(encoding="utf-8"))
    if not result["gpus"]:
        raise ValueError(f"{path}: has no GPU ({result['device']}). Give a file that `make gpu` has written on one.")
    name = re.sub(r"[^a-z0-9]+", "-", f"{result['gpus']}-{result['device']}".lower()).strip("-")
    for one in result["checks"]:
        one["told"] = one["told"].partition("\n")[0]
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}.json"
    target.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return target


def read(folder: Path = KEPT) -> list[dict[str, Any]]:
    """All stored results."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def main() -> None:
    """Store the given files, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m docs.generate.gpu_page", description=__doc__)
    parser.add_argument("results", type=Path, nargs="*")
    for path in parser.parse_args().results:
        print(keep(path))
    PAGE.write_text(page(read()), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
