from scalebook.training.notebook.explanations import sentences
from scalebook.training.notebook.result_row import ExperimentRow
from scalebook.training.tracking import names
from scalebook.training.tracking.estimate import Estimate

SPEED = "samples_per_second"


def row(name: str, speed: Estimate | None = None, *, virtual: bool = False, **measured: Estimate) -> ExperimentRow:
    by_metric = {
        "communicate": names.COMMUNICATE_SHARE, "wait": names.WAIT_SHARE, "data": names.DATA_SHARE,
        "stale": names.STALENESS_MEAN, "moved": names.PUSHED_PER_UPDATE,
    }  # fmt: skip
    return ExperimentRow(
        name, "finished", run_ids=[name], is_simulated=virtual, samples_per_second=speed,
        measured={by_metric[key]: value for key, value in measured.items()},
    )  # fmt: skip


def one(mean: float, half: float | None = None) -> Estimate:
    return Estimate(mean, half, 1 if half is None else 3)


def test_a_sentence_follows_from_the_figures_of_a_run() -> None:
    alone = row("single", one(1000.0), communicate=one(0.0), wait=one(0.0))
    server = row("async", one(1800.0), communicate=one(0.28), wait=one(0.01), stale=one(0.94), moved=one(4.2e6))
    words = (
        "28 % of its time goes into communication; its updates are stale by 0.94; it trains 1.8 times as many samples "
        "a second as single."
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
    assert sentences(both) == [("fast", "It trains 9.0 times as many samples a virtual second as slow.")]


def test_bytes_are_told_by_their_size() -> None:
    rows = [row("plain", moved=one(4.2e6)), row("coded", moved=one(1.05e6))]
    assert sentences(rows) == [("plain", "An update pushes 4.2 MB.")]
