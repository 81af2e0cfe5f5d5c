"""Kill drills, the short form: every row of the table once; per commit, every victim in every phase under one host.

The long form is `python -m benchmarks.engine_drills`.
"""

import copy
import shutil
from pathlib import Path

import pytest

from scalebook.training.engine import HostName
from scalebook.training.engine.rules.update_rules import Async, Softsync
from scalebook.training.engine.trace import RECORD
from tests.training.engine.accounts import Account, settle
from tests.training.engine.accounts import Final as FinalState
from tests.training.engine.drilling import WORKERS, Drill, drill
from tests.training.engine.forking import run_workers
from tests.training.engine.killing import Phase
from tests.training.engine.scenes import HOSTS, Kind, Row, Scene, Victim, rows, scene
from tests.training.engine.trained import Trained

pytestmark = pytest.mark.long

ROWS = rows()


def per_commit(row: Row) -> bool:
    """Victims and phases stand in one order for each host: those at even places inline, those between under servers."""
    of_host = [one for one in ROWS if one.host == row.host and one.victim != Victim.SERVER]
    return row.victim == Victim.SERVER or of_host.index(row) % 2 == HOSTS.index(row.host)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("number", "row"),
    [
        pytest.param(number, row, id=" ".join(row), marks=() if per_commit(row) else pytest.mark.drill)
        for number, row in enumerate(ROWS)
    ],
)
def test_nothing_hangs_and_nothing_is_lost_or_done_twice(number: int, row: Row) -> None:
    performed(number, row, Kind.DENSE)


def performed(number: int, row: Row, kind: Kind) -> None:
    for seed in range(number, number + 80, 8):  # another moment when the run was over before it came
        outcome = drill(scene(row, seed, kind))
        assert outcome.is_good, outcome
        if outcome.killed:
            return
    pytest.fail("in none of ten runs the moment came")


SMOKE = {
    Kind.TABLES: ("comes back applying inline", "worker 0 pushing process", "server process applying"),
    Kind.STEPS: (
        "comes back pushing inline",
        "worker 0 waiting inline",
        "a worker ending process",
        "server process waiting",
    ),
}
"""Of the other kinds, what is tried with every commit."""


@pytest.mark.sampled
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch's own optimizers make such tensors
@pytest.mark.parametrize(
    ("number", "row", "kind"),
    [
        pytest.param(number, row, kind, id=" ".join((kind, *row)), marks=() if smoke else pytest.mark.drill)
        for kind, chosen in SMOKE.items()
        for number, row in enumerate(ROWS)
        for smoke in [any(words in " ".join(row) for words in chosen)]
    ],
)
def test_nor_over_sparse_tables_and_local_steps(number: int, row: Row, kind: Kind) -> None:
    performed(number, row, kind)


@pytest.mark.parametrize("host", HOSTS)
def test_when_worker_0_dies_in_the_warm_up_another_goes_on(host: HostName) -> None:
    one = Scene(Victim.FIRST, Phase.COMPUTING, host, Async(), shards=1, seed=3, warmup=40)
    outcome = drill(one)
    assert outcome.killed
    assert outcome.is_good, outcome


# --- the accounts themselves -----------------------------------------------------------------------------------------


class Undisturbed:
    """A run in which nobody dies, and what its workers have at the end."""

    def __init__(self, folder: Path) -> None:
        one = Drill(Scene(Victim.WORKER, Phase.COMPUTING, "inline", Softsync(2), shards=3, seed=0), folder)
        one.nth = 10 * Trained.pushes
        self.folder = folder
        self.trained = one.trained
        self.finals: list[FinalState] = run_workers(WORKERS, one.work, lost=one.lost)
        self.admitted, self.deaths = one.admitted.tolist(), [0] * WORKERS
        one.run.close()

    def settle(self) -> Account:
        """The account of it."""
        return settle(self.folder, self.finals, self.admitted, self.deaths, self.trained)


@pytest.fixture(scope="module")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    made = Undisturbed(tmp_path_factory.mktemp("undisturbed"))
    assert made.admitted == [Trained.pushes] * WORKERS
    assert made.settle() == Account(0, 0, 0)
    return made


@pytest.fixture
def undisturbed(one_run: Undisturbed, tmp_path: Path) -> Undisturbed:
    """A copy, in which a test may write."""
    made = copy.deepcopy(one_run)
    made.folder = Path(shutil.copytree(one_run.folder, tmp_path / "trace"))
    return made


def test_a_push_that_is_in_no_shard_is_noticed(undisturbed: Undisturbed) -> None:
    undisturbed.admitted[1] += 1
    assert undisturbed.settle() == Account(lost=3, duplicated=0, torn=0)


def test_a_push_that_was_not_let_in_is_noticed_unless_its_worker_died(undisturbed: Undisturbed) -> None:
    undisturbed.admitted[1] -= 1
    assert undisturbed.settle() == Account(lost=0, duplicated=3, torn=0)
    undisturbed.deaths[1] = 1
    assert undisturbed.settle() == Account(lost=0, duplicated=0, torn=0)
    undisturbed.admitted[1] -= 1
    assert undisturbed.settle() == Account(lost=0, duplicated=3, torn=0)


def test_a_push_that_is_twice_in_a_shard_is_noticed(undisturbed: Undisturbed) -> None:
    file = undisturbed.folder / "optimizer-0-shard-1.bin"
    content = bytearray(file.read_bytes())
    version, _, _, *rest = RECORD.unpack_from(content, 2 * RECORD.size)
    _, worker, seq, *_ = RECORD.unpack_from(content, 0)
    RECORD.pack_into(content, 2 * RECORD.size, version, worker, seq, *rest)
    file.write_bytes(content)
    found = undisturbed.settle()
    assert (found.lost, found.duplicated) == (1, 1)


def test_weights_and_momenta_of_another_update_are_noticed(undisturbed: Undisturbed) -> None:
    momenta = undisturbed.finals[2].momenta
    assert momenta is not None
    momentum = momenta[0]
    assert momentum is not None
    momentum.view(-1)[0] += 1e-12
    undisturbed.finals[0].parameters[2].data.view(-1)[0] += 1e-12
    undisturbed.finals[1].versions[1] -= 1
    assert undisturbed.settle() == Account(lost=0, duplicated=0, torn=3)
