"""What a question does next, and that it goes on where it was, over played runs."""

import contextlib
import math
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from scalebook.training.asking import sizes
from scalebook.training.asking.answer_rows import times
from scalebook.training.asking.ask_folder import AskProgress
from scalebook.training.asking.asking import Asking, NoAnswer
from scalebook.training.base.durations import roughly
from scalebook.training.base.errors import ConfigError
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.notebook import compare, edit, sentences, store
from scalebook.training.notebook.claims import EvidenceReader, judge_all
from scalebook.training.search.search_folder import SearchFolder
from scalebook.training.tracking.notebook_runs import NotebookRuns
from scalebook.training.tracking.run_reader import RunReader
from tests.training.asking.played import CONFIG, Killed, Player, falling

pytestmark = pytest.mark.long


def names_of(path: Path) -> list[str]:
    return [getattr(cell, "name", "") for cell in store.read(path).notebook.cells]


def remove(player: Player, path: Path, name: str) -> None:
    stored = store.read(path)
    places = [place for place, cell in enumerate(stored.notebook.cells) if getattr(cell, "name", "") == name]
    player.put(stored, edit.remove(stored.notebook, places[0]))


def test_all_steps_from_a_pilot_run_to_an_answer(player: Player) -> None:
    path = player.write("a-or-b")
    steps = player.steps(path)
    assert steps[:5] == ["write_pilot", "run_pilot", "write_searches", "run_searches", "write_sides"]
    found = player.findings(path)
    assert found.state in ("answered", "not resolved")
    assert len({row.seeds for row in found.rows}) == 1
    assert found.rows[0].seeds in (3, 5)


def test_it_says_how_many_runs_and_how_much_time_are_left(player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also before a search has counted its runs: 3 of each of two sides, 2 at a time, then 5 fresh seeds of both; a run
    takes as long as the pilot run, which started for 2 s and trained for 8 s."""
    path, said, real, asked = player.write("a-or-b"), list[str](), SearchFolder.state, list[SearchFolder]()

    def state(folder: SearchFolder) -> str:
        asked.append(folder)
        return "running" if len(asked) == 1 else str(real(folder))

    monkeypatch.setattr(SearchFolder, "progress", lambda folder: None)
    player.took_s = 10.0
    for step in ("write_pilot", "run_pilot", "write_searches", "run_searches"):
        asking = Asking(path, "ask", player.description, said.append)
        done = asking.next_step()
        assert getattr(done, "func", done).__name__ == step  # type: ignore[union-attr]
        with asking.folder.alone(), monkeypatch.context() as patch:
            if step == "run_searches":
                patch.setattr(SearchFolder, "state", state)
            assert done is not None
            done()
    each_s = 10.0 + sizes.BETWEEN_S
    left_s = sizes.DRIVER_S + each_s * sizes.PARALLEL_COST * 2 * (2 + 3)
    assert said[-1] == f"trying learning rates: 0 of 6 runs, about {roughly(left_s)} left"
    progress = asking.folder.progress()
    assert progress is not None
    assert progress.left_s == pytest.approx(left_s)


@pytest.mark.parametrize(
    "question",
    [
        "more-workers",
        *(pytest.param(name, marks=pytest.mark.thorough) for name in ("cost-of-updates", "batch-and-rate")),
    ],
)
def test_its_comparison_has_the_figures_of_the_answer(player: Player, question: str) -> None:
    """The same ratios and intervals, to the same baseline, in the table and in the sentences."""
    player.curve = partial(falling, best=0.4, spread=0.05)
    path = player.write(question)
    player.steps(path)
    nb, reader = store.read(path).notebook, NotebookRuns(RunReader(player.workspace.tracking_uri()), path.name)
    judged = judge_all(EvidenceReader(player.workspace, reader, path.name, nb, player.description))
    (cell,) = nb.comparisons()
    rows = {row.experiment: row for row in compare(reader, path.name, nb, cell, player.description, judged=judged).rows}
    found = player.findings(path)
    told = dict(sentences([*rows.values()]))
    assert rows[found.rows[0].cell].relative.is_baseline
    for side in found.rows[1:]:
        assert side.ratios
        for figure, ratio in side.ratios.items():
            if figure != "best" and rows[side.cell].relative.figure(figure).value is not None:
                expected = times(ratio).replace("x", "").replace("more than", ">").replace("less than", "<")
                assert rows[side.cell].relative.figure(figure).text == expected
        decided = times(side.ratios["samples"]).rstrip(")")
        assert decided in told[side.cell]


@pytest.mark.thorough
def test_killed_anywhere_it_goes_on_to_the_same_cells(player: Player) -> None:
    whole = player.write("more-workers", "whole.md")
    player.steps(whole)
    calls, player.calls = player.calls, 0
    path = player.write("more-workers", "killed.md")
    for _ in range(calls):
        player.crash_at = player.calls + 3
        with contextlib.suppress(Killed):
            player.asking(path).run()
            break
    player.crash_at = 0
    player.asking(path).run()
    assert names_of(path) == names_of(whole)
    assert player.findings(path).headline == player.findings(whole).headline


def test_a_better_rate_beyond_an_edge_is_found(player: Player) -> None:
    player.curve = partial(falling, best=3.0, spread=0.01)
    path = player.write("a-or-b")
    assert "extend_searches" in player.steps(path)
    assert all(1.5 < (row.rate or 0) < 6 for row in player.findings(path).rows)


def is_async(experiment: Experiment) -> bool:
    return experiment.strategy.name == "AsyncPS"


def stale(experiment: Experiment, seed: int) -> list[float] | None:
    """Asynchronous updates diverge but at a hundredth of the rate."""
    if is_async(experiment) and (experiment.rate.requested or 0) > 0.002:
        return None
    return falling(experiment, seed)


@pytest.mark.thorough
def test_a_side_that_diverges_at_every_rate_tries_smaller_ones(player: Player) -> None:
    player.curve = stale
    path = player.write("more-workers")
    assert "extend_searches" in player.steps(path)
    by_words = {row.words: row.rate for row in player.findings(path).rows}
    assert min(rate or 1 for words, rate in by_words.items() if "async" in words) <= 0.002


def test_a_side_that_always_diverges_is_named(player: Player) -> None:
    player.curve = lambda experiment, seed: None if is_async(experiment) else falling(experiment, seed)
    path = player.write("more-workers")
    player.asking(path).run()
    assert len(player.findings(path).rows) == 2
    assert any("async" in one for one in player.asking(path).left_out)


def test_a_baseline_that_always_diverges_gives_no_answer(player: Player) -> None:
    path = player.write("more-workers")
    player.curve = lambda experiment, seed: falling(experiment, seed) if player.runs == 0 else None
    with pytest.raises(NoAnswer, match="No run of"):
        player.steps(path)


def test_a_pilot_run_that_fails_gives_no_answer(player: Player) -> None:
    player.curve = lambda experiment, seed: None
    with pytest.raises(NoAnswer, match="The pilot run of base failed: diverged: train_loss became nan"):
        player.steps(player.write("more-workers"))


def test_a_pilot_run_that_cannot_validate_so_often_validates_as_the_experiment_says(player: Player) -> None:
    """Such as with data whose length is not known."""
    player.curve = lambda experiment, seed: (
        None if "val_check_interval" in experiment.trainer else falling(experiment, seed)
    )
    player.why = "val_check_interval must be 1.0 or an int"
    path = player.write("more-workers", config={**CONFIG, "trainer": {**CONFIG["trainer"], "max_epochs": 2}})
    assert player.steps(path)[:4] == ["write_pilot", "run_pilot", "run_pilot", "write_searches"]


def test_a_metric_below_zero_has_no_ratio_which_is_said_before_the_searches(player: Player) -> None:
    player.curve = lambda experiment, seed: [-value for value in falling(experiment, seed)]
    with pytest.raises(NoAnswer, match="ratio"):
        player.steps(player.write("a-or-b"))


def test_a_metric_that_nobody_logs(player: Player) -> None:
    why = r"metric: val/other is not logged by ask-pilot\. Choose a metric that is logged \(val/loss, train/loss\)"
    with pytest.raises(ConfigError, match=why):
        player.steps(player.write("a-or-b", metric="val/other"))


def test_an_experiment_that_was_removed(player: Player) -> None:
    path = player.write("a-or-b")
    remove(player, path, "other")
    with pytest.raises(ConfigError, match="other"):
        player.steps(path)


def test_a_budget_that_is_too_short_says_how_long_it_has_to_be(player: Player) -> None:
    player.took_s = 100.0
    with pytest.raises(ConfigError, match="too short"):
        player.steps(player.write("more-workers", budget=60.0))


def test_a_comparison_that_was_removed_is_written_again(player: Player) -> None:
    path = player.write("a-or-b")
    player.steps(path)
    before, cell = names_of(path), player.cell(path)
    remove(player, path, str(cell.comparison))
    player.asking(path).run()
    assert sorted(names_of(path)) == sorted(before)


def test_renamed_cells_stay_those_of_the_question(player: Player) -> None:
    player.curve = partial(falling, best=0.4)
    path = player.write("a-or-b")
    player.steps(path)
    side, runs = next(iter(player.cell(path).searches)), player.runs
    stored = store.read(path)
    player.put(stored, edit.rename(stored.notebook, side, "renamed"))
    player.steps(path)
    assert player.runs == runs
    assert player.findings(path).rows[0].cell == "renamed"


def test_the_target_is_reached_between_validations(player: Player) -> None:
    """A run of two epochs validates ten times or more, which is said."""
    config = {**CONFIG, "trainer": {**CONFIG["trainer"], "max_epochs": 2}}
    path = player.write("more-workers", config=config)
    player.asking(path).run()
    nb = store.read(path).notebook
    sides = [nb.experiment(name) for name in player.cell(path).searches]
    assert [side and side.config["trainer"]["val_check_interval"] for side in sides] == [0.125] * len(sides)
    assert any("validates 8 times per epoch" in one for one in player.asking(path).left_out)


def test_a_verdict_that_another_rate_may_undo_does_not_hold(player: Player) -> None:
    """B was chosen at a rate that is a little worse than its best one: that A is better is not resolved by that."""

    def curve(experiment: Experiment, seed: int) -> list[float]:
        rate, is_other = experiment.rate.requested or 0, experiment.written["seed_everything"] in (7, 1007)
        takes = 1.2 if abs(rate - 0.4) < 0.01 else 1.0 if abs(rate - 0.1) < 0.01 else 3.0
        if is_other and seed in (1, 7) and takes == 1.2:
            takes = 0.98  # the one run that has chosen it was lucky
        return [takes * (1 + 0.01 * (seed % 3)) / step for step in range(1, 21)]

    player.curve = curve
    path = player.write("a-or-b")
    player.steps(path)
    found = player.findings(path)
    assert [row.rate for row in found.rows] == [0.4, 0.1]
    assert found.state == "not resolved"
    assert any("may be just as good at" in one for one in found.sentences), found


def test_the_target_is_what_a_second_run_reaches_too(player: Player) -> None:
    """The best run stays at 0.2, by luck; the next one at 0.5."""
    levels = {0.1: 0.2, 0.4: 0.5}
    player.curve = lambda experiment, seed: [
        max(levels.get(experiment.rate.requested or 0, 0.9), 1 / (1 + step)) for step in range(20)
    ]
    path = player.write("more-workers")
    player.steps(path)
    assert player.cell(path).target == 0.5


def test_one_more_seed_that_would_resolve_it_is_added_as_two(player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    path = player.write("more-workers")
    player.steps(path)
    asking = player.asking(path)
    stored = asking.stored()
    now = max(side.repeats for side in stored.notebook.experiments())
    open_claim = SimpleNamespace(verdict="not resolved", resolved_by=now + 1)
    monkeypatch.setattr(asking, "_judged", lambda *_: [open_claim])
    monkeypatch.setattr("scalebook.training.asking.asking.MOST_SEEDS", 32)
    assert asking._worth_adding(stored, player.cell(path)) == now + 2


def test_where_nothing_can_be_searched_the_target_is_of_the_pilot_run(player: Player) -> None:
    """Batch and rate: the experiment as it stands is the baseline, so its own run says what is reached."""
    path = player.write("batch-and-rate")
    player.steps(path)
    assert player.cell(path).target == pytest.approx(1 / 7, rel=0.2)
    assert player.findings(path).rows[0].rate == 0.1


def test_the_rates_that_were_used_are_said_and_whether_they_are_the_own_ones(player: Player) -> None:
    player.curve = lambda experiment, seed: falling(
        experiment, seed, best=0.4 if experiment.written["seed_everything"] in (7, 1007) else 0.1, spread=0.01
    )
    path = player.write("a-or-b")
    player.steps(path)
    found = player.findings(path)
    by_words = {row.words: (row.own_rate, row.rate) for row in found.rows}
    assert by_words == {"other": (0.1, 0.4), "base": (0.1, 0.1)}
    said = (
        "Learning rates: other 0.4, instead of 0.1 in the config; base 0.1, the rate in the config, which was the best."
    )
    assert said in found.sentences
    assert "each at its best learning rate" in found.headline


def fast_small(experiment: Experiment, seed: int) -> list[float]:
    """Small batches are sooner at every value of the loss, and end at a larger one."""
    size = experiment.batch.per_worker or 32
    rate, luck = experiment.rate.requested or 0.1, 1 + 0.01 * (seed % 3)
    takes = luck * (size / 32) ** 0.5 * (1 + abs(math.log(rate / 0.1)))
    floor = 0.002 * (32 / size) ** 0.5
    return [floor + 1 / (1 + step / takes) for step in range(1, 21)]


def test_the_best_batch_is_searched_by_what_decides_until_it_is_inside_of_what_was_tried(player: Player) -> None:
    """By its best value a large batch is the best one, by the time to the target the smallest: 1."""
    player.curve = fast_small
    path = player.write(
        "batch-and-rate",
        target=0.3,
        config={**CONFIG, "data": {**CONFIG["data"], "init_args": {"batch_size": 8, "limit": 128}}},
    )
    steps = player.steps(path)
    assert steps.count("extend_searches") >= 1
    found = player.findings(path)
    assert found.rows[1].batch == 1
    assert any("batch size 1 is the smallest value tried. A better value may be" in one for one in found.sentences)


def test_the_own_batch_and_rate_may_be_the_best(player: Player) -> None:
    def best_as_written(experiment: Experiment, seed: int) -> list[float]:
        away = abs(math.log((experiment.batch.per_worker or 1) / 32)) + abs(
            math.log((experiment.rate.requested or 1) / 0.1)
        )
        return [1 / (1 + step / (1 + away)) for step in range(1, 21)]

    player.curve = best_as_written
    path = player.write("batch-and-rate")
    player.steps(path)
    found = player.findings(path)
    assert found.headline == "Keep batch 32, learning rate 0.1, which were the best of all the values tried."
    assert (found.state, found.more_seeds) == ("answered", 0)


def test_a_search_whose_best_rate_is_at_an_edge_says_that_it_goes_on(player: Player) -> None:
    player.curve = partial(falling, best=3.0, spread=0.01)
    path = player.write("a-or-b")
    for _ in range(4):
        asking = player.asking(path)
        step = asking.next_step()
        assert step is not None
        with asking.folder.alone():
            step()
    player.asking(path).folder.write(AskProgress(0.0, 3600.0, ""))
    said = player.findings(path).headline
    assert said.startswith(
        "Not answered yet: all 6 runs of the searches have ended. The search continues beyond the values tried so far"
    )
    assert "other: learning rate 0.4 is the largest value tried" in said


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("steps", "says"),
    [
        (2, "too short"),
        (3, "Not answered yet: the searches have not started"),
        (4, "Not answered yet: 0 of at least 6"),
        (5, "Not answered yet: 0 of at"),
    ],
)
def test_a_budget_that_is_spent_ends_every_phase(player: Player, steps: int, says: str) -> None:
    path = player.write("a-or-b")
    for _ in range(steps):
        step = player.asking(path).next_step()
        assert step is not None
        with player.asking(path).folder.alone():
            step()
    player.asking(path).folder.write(AskProgress(0.0, 3600.0, ""))
    runs = player.runs
    if steps < 3:
        with pytest.raises(ConfigError, match=says):
            player.steps(path)
    else:
        player.steps(path)
        assert player.findings(path).headline.startswith(says)
    assert player.runs == runs
