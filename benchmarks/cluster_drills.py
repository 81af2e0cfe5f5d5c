"""Drills of the engine over nodes: `python -m benchmarks.cluster_drills [--moments 20] [--only WORDS] [--load ...]`.

Two nodes are two network namespaces of this machine (root; tests/cluster): the shards, worker 0 and a proxy on the
first, worker 1 on the second. At a random moment something dies; or the link fails, one way or both, for good or for a
while, or becomes slow, or loses frames; or worker 1 leaves, or joins while the other trains. Of twenty moments five are
of a model with sparse tables, and five with `overlap`. Rules, shards, hosts and TLS take turns. After every second four
deaths the worker comes back as a new process when the link works again. Counted are hangs, updates lost and duplicated
by the trace, shards that differ from the trace, and processes left. All counts must be 0, and nothing may take more
than 6 s to notice, else the exit code is 1. About 40 minutes, mostly of waiting, for 20 moments of each kind.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace

import torch

from benchmarks.common import parser, row
from tests.cluster.drilling import Kind, Load, Outcome, drill, scene
from tests.cluster.namespaces import clear_stale, why_not

HEAD = (
    "what goes wrong", "moments", "hangs", "lost", "duplicated", "torn", "left", "told where the shards are, s",
    "told there, s", "went on, s",
)  # fmt: skip


def line(kind: Kind, outcomes: list[Outcome]) -> str:
    """A row of the table. Seconds are median and maximum."""
    account = (sum(counts) for counts in zip(*(one.account for one in outcomes), strict=True))
    measured = zip(*((one.here_s, one.there_s, one.went_on_s) for one in outcomes), strict=True)
    spans = [_span([seconds for seconds in column if seconds]) for column in measured]
    hung, left = sum(one.hung for one in outcomes), sum(len(one.left) for one in outcomes)
    return row(kind, len(outcomes), hung, *account, left, *spans)


def _span(seconds: list[float]) -> str:
    return f"{sorted(seconds)[len(seconds) // 2]:.2f}, {max(seconds):.2f}" if seconds else "-"


def performed(kind: Kind, moments: int, first: int, load: Load | None) -> Iterator[Outcome]:
    """The outcomes as they come; failures are printed at once."""
    for seed in range(first, first + moments):
        outcome = drill(scene(kind, seed, load))
        if not outcome.is_good:
            report = f"{replace(outcome, problem='')}\n{outcome.problem}"
            print(f"NOT AS PROMISED: {scene(kind, seed, load)}: {report}", file=sys.stderr, flush=True)
        yield outcome


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--moments", type=int, default=20, help="of each kind")
    options.add_argument("--first", type=int, default=0, help="number of the first moment, which seeds it")
    options.add_argument("--only", default="", help="only kinds with these words, such as 'one way'")
    options.add_argument("--load", type=Load, choices=list(Load), help="train this in all drills")
    given = options.parse_args()
    if why := why_not():
        print(f"nothing was drilled: {why}")
        return 0
    torch.set_num_threads(1)
    torch.sparse.check_sparse_tensor_invariants.disable()  # type: ignore[no-untyped-call]  # said, so none is warned
    failures = total = 0
    print(f"{row(*HEAD)}\n|{'---|' * len(HEAD)}")
    for kind in Kind:
        if given.only in kind:
            outcomes = list(performed(kind, given.moments, given.first, given.load))
            print(line(kind, outcomes), flush=True)
            total += len(outcomes)
            failures += sum(not one.is_good for one in outcomes)
    clear_stale()
    print(f"\n{total} moments, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
