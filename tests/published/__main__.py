"""The planner against numbers that others have published: what it predicts from public facts, and where it misses.

    python -m tests.published [servers] [systems] [peers] [splits] [coverage] [--write]

Without a name it is all of them, half a minute. Nothing is fitted; each module says what its predictions rest on. Read
"MISSED" in the rows. `coverage`: how many compared plans of a system lie within the range that plans of the other
systems give. `--write` updates docs/figures/published-*.json and training/planner/reliability.json.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch

from scalebook.training.planner.reliability import PlansCompared, read_comparisons, write
from tests.published import coverage, peers, servers, splits, systems
from tests.published.rows import Report

ROOT: Final = Path(__file__).resolve().parents[2]
REPORTS: Final[dict[str, Callable[[], Report]]] = {
    "systems": systems.report, "peers": peers.report, "splits": splits.report, "servers": servers.report,
    "coverage": coverage.report,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(REPORTS))
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.names or REPORTS:
        report = REPORTS[name]()
        print(f"{name}:", *report.lines, "", sep="\n")
        if args.write and report.figures:
            path = ROOT / f"docs/figures/published-{name}.json"
            path.write_text(json.dumps(report.figures, indent=1) + "\n", encoding="utf-8")
        if args.write and report.compared:
            compared = PlansCompared(f"python -m tests.published {name}", "as published", list(report.compared))
            write(ROOT / "training/planner/reliability.json", compared)
            read_comparisons.cache_clear()


if __name__ == "__main__":
    main()
