"""Kill drills of the engine, without Lightning: `python -m benchmarks.engine_drills [--moments 20] [--only WORDS]`.

Three workers (and the servers of host `process`) push traced gradients of known value; one process is killed at a
random moment of a phase. A row takes the rules in turn, one shard and three, budgets, damping, overlap, codecs. The
same again over sparse tables (`--kind "sparse tables"`: rows by Adagrad), and over local SGD, DiLoCo, elastic averaging
and significance (`--kind "local steps"`). Counted are hangs (a wait in the engine met its deadline of 10 s), updates
lost and duplicated by the trace, shards whose weights and momenta are not those of the trace (bit for bit; over tables
and local steps within 1e-9; of elastic averaging that all survivors have the same), processes and memory left behind.
Prints a Markdown table; exits with 1 when anything is not 0. About 7 minutes on two cores for 20 moments of each row of
a kind.
"""

import faulthandler
import itertools
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks.common import parser
from tests.training.engine.drilling import Outcome, drill
from tests.training.engine.scenes import Kind, Row, rows, scene

SHARED_MEMORY = Path("/dev/shm")
ONE_DRILL_S = 120.0  # the engine's own deadlines are shorter: past this the monitor itself hangs, and the drills end
HEAD = (
    "| trained | killed | while | host | moments | hangs | lost | duplicated | torn | left | noticed, s | "
    "others went on, s |"
)


class Line(NamedTuple):
    """One row of the table."""

    kind: Kind
    row: Row
    outcomes: list[Outcome]

    @property
    def failures(self) -> int:
        """Drills that failed."""
        return sum(not outcome.is_good for outcome in self.outcomes)

    def __str__(self) -> str:
        counted = [
            len(self.outcomes),
            sum(outcome.hung for outcome in self.outcomes),
            sum(outcome.account.lost for outcome in self.outcomes),
            sum(outcome.account.duplicated for outcome in self.outcomes),
            sum(outcome.account.torn for outcome in self.outcomes),
            sum(len(outcome.left) for outcome in self.outcomes),
        ]
        slowest = [
            max(outcome.noticed_s for outcome in self.outcomes),
            max(outcome.went_on_s for outcome in self.outcomes),
        ]
        return f"| {' | '.join([self.kind, *self.row, *map(str, counted), *(f'{s:.3f}' for s in slowest)])} |"


def perform(kind: Kind, row: Row, moments: int) -> Line:
    """Run drills of a row until there are so many deaths: a run may be over before its moment comes."""
    outcomes: list[Outcome] = []
    for seed in itertools.count():
        faulthandler.dump_traceback_later(ONE_DRILL_S, exit=True)
        outcome = drill(scene(row, seed, kind))
        faulthandler.cancel_dump_traceback_later()
        if not outcome.is_good:
            print(f"NOT AS PROMISED: {scene(row, seed, kind)}: {outcome}", file=sys.stderr, flush=True)
        if outcome.killed or not outcome.is_good:
            outcomes.append(outcome)
        if len(outcomes) >= moments or seed >= 10 * moments:
            break
    return Line(kind, row, outcomes)


def lines(moments: int, kinds: Sequence[Kind], only: str) -> Iterator[Line]:
    """The table's rows whose words contain `only`, as they finish."""
    for kind in kinds:
        for row in rows():
            if only in " ".join(row):
                yield perform(kind, row, moments)


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--moments", type=int, default=20, help="deaths in each row")
    options.add_argument("--only", default="", help="only rows with these words, such as 'worker 0 applying process'")
    options.add_argument("--kind", choices=[kind.value for kind in Kind], help="kind of training; by default all")
    given = options.parse_args()
    kinds = [Kind(given.kind)] if given.kind else [*Kind]
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="Sparse invariant checks")  # torch's own optimizers make such tensors
    before, total, failures = set(SHARED_MEMORY.iterdir()), 0, 0
    print(f"{HEAD}\n|{'---|' * (HEAD.count('|') - 1)}")
    for line in lines(given.moments, kinds, given.only):
        print(line, flush=True)
        total += len(line.outcomes)
        failures += line.failures + (len(line.outcomes) < given.moments)
    left = sorted(path.name for path in set(SHARED_MEMORY.iterdir()) - before)
    print(f"\n{total} deaths, {failures} failures, shared memory left by name: {', '.join(left) or 'none'}")
    return 1 if failures or left else 0


if __name__ == "__main__":
    sys.exit(main())
