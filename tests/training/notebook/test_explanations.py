import pytest

from scalebook.training.notebook.explanations import sentences
from scalebook.training.notebook.relative import Relative, RelativeFigure, RelativeRow
from scalebook.training.notebook.result_row import ExperimentRow
from scalebook.training.tracking import names
from scalebook.training.tracking.estimates import Estimate

SPEED = "samples_per_second"


def row(
    name: str, speed: Estimate | None = None, *, virtual: bool = False, strategy: str = "AsyncPS",
    relative: RelativeRow | None = None, **measured: Estimate,
) -> ExperimentRow:  # fmt: skip
    by_metric = {
        "communicate": names.COMMUNICATE_SHARE, "wait": names.WAIT_SHARE, "data": names.DATA_SHARE,
        "stale": names.STALENESS_MEAN, "moved": names.PUSHED_PER_UPDATE, "pulled": names.PULLED_PER_UPDATE,
    }  # fmt: skip
    return ExperimentRow(
        name, "finished", run_ids=[name], is_simulated=virtual, samples_per_second=speed, strategy=strategy,
        relative=relative or RelativeRow(),
        measured={by_metric[key]: value for key, value in measured.items()},
    )  # fmt: skip


def one(mean: float, half: float | None = None) -> Estimate:
    return Estimate(mean, half, 1 if half is None else 3)


def test_a_sentence_follows_from_the_figures_of_a_run() -> None:
    alone = row("single", one(1000.0), communicate=one(0.0), wait=one(0.0))
    server = row("async", one(1800.0), communicate=one(0.28), wait=one(0.01), stale=one(0.94), moved=one(4.2e6))
    words = (
        "28 % of its time goes into communication; the mean staleness of its updates is 0.94; it trains on 1.8 times "
        "as many samples per second as single."
    )
    assert sentences([alone, server]) == [("async", words)], "bytes were counted of one alone"


def test_what_does_not_differ_is_not_told() -> None:
    rows = [row(name, one(1000.0 + i), communicate=one(0.28), stale=one(0.9 + i / 10)) for i, name in enumerate("ab")]
    assert sentences(rows) == []
    assert sentences([row("a", one(1.0), stale=one(3.0))]) == [], "there is nothing to compare it with"


def test_what_was_not_recorded_is_not_told() -> None:
    assert sentences([row("a"), row("b", communicate=one(0.5))]) == [], "nobody knows the share of the other"
    assert sentences([row("a"), row("b")]) == []


def test_seeds_must_tell_the_figures_apart() -> None:
    near = [row("a", communicate=one(0.10, 0.05)), row("b", communicate=one(0.20, 0.06))]
    apart = [row("a", communicate=one(0.10, 0.04)), row("b", communicate=one(0.20, 0.05))]
    assert (sentences(near), sentences(apart)) == ([], [("b", "20 % of its time goes into communication.")])


def test_seconds_of_two_clocks_are_not_held_against_each_other() -> None:
    rows = [row("real", one(100.0)), row("virtual", one(900.0), virtual=True)]
    assert sentences(rows) == []
    both = [row("slow", one(100.0), virtual=True), row("fast", one(900.0), virtual=True)]
    assert sentences(both) == [("fast", "It trains on 9.0 times as many samples per virtual second as slow.")]


def test_bytes_are_told_by_their_size() -> None:
    rows = [row("plain", moved=one(4.2e6)), row("coded", moved=one(1.05e6))]
    assert sentences(rows) == [("plain", "An update pushes 4.2 MB.")]


@pytest.mark.parametrize("strategy", ["ddp", "Peers", "ModelParallel"])
def test_workers_without_a_server_push_and_pull_nothing(strategy: str) -> None:
    plain, coded = (one(4.2e6), one(1.05e6))
    rows = [row(name, strategy=strategy, moved=size, pulled=size) for name, size in (("plain", plain), ("c", coded))]
    assert sentences(rows) == [("plain", "Per update, its workers send each other 4.2 MB.")]
    rows = [row(name, moved=size, pulled=size) for name, size in (("plain", plain), ("c", coded))]
    assert sentences(rows) == [("plain", "An update pushes 4.2 MB; an update pulls 4.2 MB.")]


ONE_PROCESS = RelativeRow(is_baseline=True)
CLEAR = Relative(0.57, 0.52, 0.63, seeds=5)
UNCLEAR = Relative(1.04, 0.9, 1.2, seeds=5)
SINGLE_SEED = Relative(1.8, seeds=1, reason="one seed")


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        (
            {"seconds": CLEAR, "samples": UNCLEAR, "samples_per_second": SINGLE_SEED},
            (
                "It reaches the target in 0.57x (0.52 to 0.63) the time of single and with 1.04x (0.90 to 1.20, not "
                "resolved) the samples."
            ),
        ),
        (
            {"seconds": Relative(reason="two clocks"), "samples": CLEAR},
            "It reaches the target with 0.57x (0.52 to 0.63) the samples of single.",
        ),
        (
            {"seconds": Relative(1.2, bound=">", seeds=1)},
            "It reaches the target in more than 1.20x the time of single.",
        ),
        ({"samples_per_second": SINGLE_SEED}, "It trains on 1.80x as many samples per second as single."),
    ],
)
def test_one_process_is_what_the_others_are_compared_with(figures: dict[RelativeFigure, Relative], words: str) -> None:
    """Not the slowest, `slow`; and one process itself has no sentence."""
    rows = [
        row("single", one(1000.0), relative=ONE_PROCESS),
        row("slow", one(10.0), relative=RelativeRow(reason="the experiments with one process differ from it in model")),
        row("two", one(1800.0), relative=RelativeRow("single", figures)),
    ]
    assert ("two", words) in sentences(rows)
    assert "single" not in dict(sentences(rows))


def test_virtual_workers_are_simulated() -> None:
    """Their seconds are called virtual."""
    both: dict[RelativeFigure, Relative] = {"seconds": CLEAR, "samples": CLEAR}
    samples: dict[RelativeFigure, Relative] = {"seconds": Relative(reason="two clocks"), "samples": CLEAR}
    rows = [
        row("single", one(1000.0), relative=ONE_PROCESS),
        row("a", virtual=True, relative=RelativeRow("single", samples)),
        row("b", virtual=True, relative=RelativeRow("single", both)),
    ]
    assert dict(sentences(rows)) == {
        "a": "It reaches the target with 0.57x (0.52 to 0.63) the samples of single (simulated).",
        "b": "It reaches the target in 0.57x (0.52 to 0.63) the virtual time of single and with 0.57x (0.52 to 0.63) "
        "the samples.",
    }


def test_shares_are_compared_with_one_process() -> None:
    """Both others communicate as much, so neither differs from the other."""
    base = row("single", communicate=one(0.0), wait=one(0.0), relative=ONE_PROCESS)
    rate: dict[RelativeFigure, Relative] = {"samples_per_second": SINGLE_SEED}
    others = [row(name, communicate=one(0.28), relative=RelativeRow("single", rate)) for name in "ab"]
    words = "It trains on 1.80x as many samples per second as single; 28 % of its time goes into communication."
    assert sentences([base, *others]) == [("a", words), ("b", words)]
