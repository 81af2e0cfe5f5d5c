"""Kill drills of the engine, without Lightning: `python -m benchmarks.engine_drills [--moments 20] [--only WORDS]`.

Three workers (and the servers of host `process`) push traced gradients of known value; one process is killed at a
random moment of a phase. A row takes the rules in turn, one shard and three, budgets, damping, overlap, codecs. `--kind
"sparse tables"` does the same over rows by Adagrad, `--kind "local steps"` over local SGD, DiLoCo, elastic averaging
and significance. Counted are hangs (a wait that met its deadline of 10 s), updates lost and duplicated by the trace,
shards that differ from the trace (bit for bit, else within 1e-9; elastic averaging: survivors that differ), processes
and memory left. All counts must be 0, else the exit code is 1. 7 minutes on two cores for 20 moments of a kind's rows.
"""

import faulthandler
import itertools
import sys
import warnings
from pathlib import Path

import torch

from benchmarks.common import parser, row
from tests.training.engine import scenes
from tests.training.engine.drilling import Outcome, drill
from tests.training.engine.scenes import Kind, Row, scene

SHARED_MEMORY = Path("/dev/shm")
ONE_DRILL_S = 120.0  # the engine's own deadlines are shorter: past this the monitor itself hangs, and the drills end
HEAD = (
    "trained", "killed", "while", "host", "moments", "hangs", "lost", "duplicated", "torn", "left", "noticed, s",
    "others went on, s",
)  # fmt: skip


def line(kind: Kind, place: Row, outcomes: list[Outcome]) -> str:
    """A row of the table. Seconds are of the slowest."""
    account = (sum(counts) for counts in zip(*(one.account for one in outcomes), strict=True))
    hung, left = sum(one.hung for one in outcomes), sum(len(one.left) for one in outcomes)
    slowest = max(one.noticed_s for one in outcomes), max(one.went_on_s for one in outcomes)
    return row(kind, *place, len(outcomes), hung, *account, left, *(f"{seconds:.3f}" for seconds in slowest))


def perform(kind: Kind, place: Row, moments: int) -> list[Outcome]:
    """Run drills of a row until there are so many deaths: a run may be over before its moment comes."""
    outcomes: list[Outcome] = []
    for seed in itertools.count():
        faulthandler.dump_traceback_later(ONE_DRILL_S, exit=True)
        outcome = drill(scene(place, seed, kind))
        faulthandler.cancel_dump_traceback_later()
        if not outcome.is_good:
            print(f"NOT AS PROMISED: {scene(place, seed, kind)}: {outcome}", file=sys.stderr, flush=True)
        if outcome.killed or not outcome.is_good:
            outcomes.append(outcome)
        if len(outcomes) >= moments or seed >= 10 * moments:
            break
    return outcomes


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--moments", type=int, default=20, help="deaths in each row")
    options.add_argument("--only", default="", help="only rows with these words, such as 'worker 0 applying process'")
    options.add_argument("--kind", choices=[kind.value for kind in Kind], help="kind of training; by default all")
    given = options.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="Sparse invariant checks")  # torch's own optimizers make such tensors
    before, total, failures = set(SHARED_MEMORY.iterdir()), 0, 0
    print(f"{row(*HEAD)}\n|{'---|' * len(HEAD)}")
    for kind, place in itertools.product([Kind(given.kind)] if given.kind else Kind, scenes.rows()):
        if given.only in " ".join(place):
            outcomes = perform(kind, place, given.moments)
            print(line(kind, place, outcomes), flush=True)
            total += len(outcomes)
            failures += sum(not one.is_good for one in outcomes) + (len(outcomes) < given.moments)
    left = sorted(path.name for path in set(SHARED_MEMORY.iterdir()) - before)
    print(f"\n{total} deaths, {failures} failures, shared memory left by name: {', '.join(left) or 'none'}")
    return 1 if failures or left else 0


if __name__ == "__main__":
    sys.exit(main())
