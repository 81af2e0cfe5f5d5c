"""Results, comparison and table, over runs in a real store."""

from typing import TYPE_CHECKING

import pytest

from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.identity import config_hash
from scalebook.training.experiments.strategies import strategy_words
from scalebook.training.notebook.cells import Notebook
from scalebook.training.notebook.comparison import (
    Comparison,
    compare,
    compare_runs,
    differences,
    meaning_by_key,
    meanings_by_name,
    record_figures,
)
from scalebook.training.notebook.comparison_table import TABLE_WIDTH, comparison_text
from scalebook.training.notebook.parse import parse
from scalebook.training.notebook.read_results import results
from scalebook.training.tracking import names
from scalebook.training.tracking.estimates import Estimate
from scalebook.training.tracking.run_reader import RunReader
from tests.training.tracking.recorded import record

if TYPE_CHECKING:
    from mlflow import MlflowClient

PAGE = """
```yaml experiment=sync
repeats: 2
config: {model: M, trainer: {strategy: ddp, devices: 2}}
```
```yaml experiment=async-with-a-rather-long-name-for-a-table
repeats: 2
config: {model: M, trainer: {strategy: AsyncPS, devices: 2}, seed_everything: 5}
```
```yaml experiment=broken
config: {model: Other}
```
```yaml comparison=both
runs: [sync, async-with-a-rather-long-name-for-a-table, broken, gone]
metric: val/accuracy
x: [updates, seconds]
target: 0.9
```
"""
NB = parse(PAGE)
SYNC, ASYNC, BROKEN = NB.experiments()


@pytest.fixture(scope="module", autouse=True)
def _runs(client: "MlflowClient", description: Description) -> None:
    def add(cell: str, seed: int, values: list[float], **more: object) -> None:
        found = NB.experiment(cell)
        assert found is not None
        told: dict[str, object] = {
            "cell": cell,
            "config_hash": config_hash(Experiment.read(found.config, description)),
            "seed": seed,
        }
        record(client, metric="val/accuracy", values=values, **{**told, **more})  # type: ignore[arg-type]  # a test's words

    ddp = {names.TAG_STRATEGY: "ddp", names.TAG_RULE: ""}
    rates = {names.UPDATES_PER_SECOND: 100.0, names.SAMPLES_PER_SECOND: 3200.0}
    add("sync", 1, [0.1], start=1000, tags=ddp)
    add("sync", 1, [0.5, 0.91, 0.95], start=2000, tags=ddp, extra=rates)
    add("sync", 2, [0.5, 0.8, 0.93], start=2000, tags=ddp, extra=rates)
    add("sync", 2, [0.99], start=9000, config_hash="of-an-earlier-config")
    add(ASYNC.name, 5, [0.5, 0.97, 0.92], start=1000, extra={names.STALENESS_MEAN: 1.25})
    add(ASYNC.name, 6, [0.5, 0.6, float("nan")], start=1000, extra={names.STALENESS_MEAN: 0.75})
    add("broken", 1, [], status="FAILED", tags={names.TAG_FAILURE: "diverged", names.TAG_CAUSE: "loss became nan"})


def test_results_are_the_newest_of_the_config_as_it_stands(reader: RunReader, description: Description) -> None:
    first, second = results(reader, "page.md", SYNC, description, NB)
    assert first.run is not None
    assert second.run is not None
    assert (first.seed, first.run.metrics["val/accuracy"], first.stale) == (1, 0.95, False)
    assert (second.seed, second.run.metrics["val/accuracy"], second.stale) == (2, 0.93, False)
    edited_page = parse(PAGE.replace("Other", "Another"))
    (edited,) = results(reader, "page.md", edited_page.experiments()[2], description, edited_page)
    assert edited.run is not None
    assert edited.stale
    assert results(reader, "other.md", BROKEN, description, NB)[0].run is None


def test_a_comparison_averages_over_seeds(reader: RunReader, description: Description) -> None:
    found = compare(reader, "page.md", NB, NB.comparisons()[0], description)
    sync, other, broken, gone = found.rows
    assert sync.best is not None
    assert (sync.outcome, sync.strategy, sync.workers, sync.batch_global) == ("finished", "ddp", 2, 32)
    assert (round(sync.best.mean, 6), sync.best.n) == (0.94, 2)
    updates = sync.to_target["updates"].estimate
    assert updates is not None
    assert updates.mean == 25.0  # 20 and 30
    assert sync.to_target["samples"].estimate is not None
    assert sync.updates_per_second == Estimate(100.0, 0.0, 2)
    assert other.best is not None
    assert round(other.best.mean, 6) == round((0.97 + 0.6) / 2, 6)
    assert (other.to_target["updates"].estimate, other.to_target["updates"].reached) == (None, 1)
    assert other.staleness_mean is not None
    assert other.staleness_mean.mean == 1.0
    assert (broken.outcome, broken.run_ids, broken.note) == ("failed", [], "diverged: loss became nan")
    assert gone.outcome == "missing"
    assert [curve.values[0] for curve in found.curves] == [0.5] * 4


def test_what_differs(reader: RunReader, description: Description) -> None:
    found = dict(compare(reader, "page.md", NB, NB.comparisons()[0], description).differences)
    assert list(found) == ["model", "trainer.devices", "trainer.strategy", "seed_everything"]
    assert found["trainer.strategy"] == {"sync": "ddp", ASYNC.name: "AsyncPS", "broken": "auto"}
    assert differences({"a": {"x": {"y": 1}}, "b": {"x": {"y": 1}}}) == []
    assert differences({"a": {"x": 1}, "b": {"x": True}}) == [("x", {"a": 1, "b": True})]


def test_what_is_said_by_a_default_does_not_differ(description: Description) -> None:
    short = {"model": "PixelCNN", "data": "Digits", "trainer": {"strategy": "AsyncPS", "devices": 2}}
    whole = {"class_path": "scalebook.training.lightning.AsyncPS", "init_args": {"rule": "async"}}
    long = {**short, "trainer": {"strategy": whole, "devices": 2}, "threads": 1, "seed_everything": 1}
    assert meaning_by_key(Experiment.read(short, description)) == meaning_by_key(Experiment.read(long, description))
    other = {**short, "trainer": {"strategy": {**whole, "init_args": {"rule": "sync"}}, "devices": 2}}
    said = meanings_by_name({"a": Experiment(short, description), "b": Experiment(other, description)})
    assert differences(said) == [("trainer.strategy.rule", {"a": "async", "b": "sync"})]


def test_seeds_are_grouped(reader: RunReader) -> None:
    ids = [run.id for run in reader.runs(notebook="page.md", cell="sync")]
    found = compare_runs(reader, ids, "val/accuracy", grouped=True)
    assert sorted(len(one.run_ids) for one in found.rows) == [1, 3]  # one is of an earlier config
    assert next(one for one in found.rows if len(one.run_ids) == 3).experiment == "sync"


def test_any_runs_side_by_side(reader: RunReader) -> None:
    ids = [run.id for run in reader.runs(notebook="page.md", cell="sync")]
    found = compare_runs(reader, [*ids, ids[0]], "val/accuracy", 0.9)
    assert len(found.rows) == 4
    assert len({row.experiment for row in found.rows}) == 4  # called the same, told apart by their ids
    with pytest.raises(KeyError):
        compare_runs(reader, ["0" * 32], "val/accuracy")


def test_the_table_fits_and_says_what_is_missing(reader: RunReader, description: Description) -> None:
    lines = comparison_text(compare(reader, "page.md", NB, NB.comparisons()[0], description)).splitlines()
    assert max(map(len, lines)) <= TABLE_WIDTH
    assert lines[0] == (
        "both: val/accuracy (higher is better, target 0.9); mean of 2 seeds ± half the width of the 95 % interval"
    )
    by_name = {line.split()[0]: line for line in lines if line}
    assert "DDP" in by_name["sync"]
    assert "0.94 ± 0.13" in by_name["sync"]
    assert "25 ± 64" in by_name["sync"]
    assert "1 of 2" in by_name[ASYNC.name]
    assert "broken: 0 of 1 runs, failed (diverged: loss became nan)" in lines
    assert "gone: 0 of 0 runs, missing (no such experiment in this notebook)" in lines


def test_seeds_may_be_fewer_than_the_cells_repeats(reader: RunReader, description: Description) -> None:
    found = compare(reader, "page.md", NB, NB.comparisons()[0], description, seeds=1)
    assert found.rows[0].best == Estimate(0.95, None, 1)
    assert "has only one seed" in comparison_text(found)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("async", "parameter server, async"),
        ("bounded, bound 3", "parameter server, bounded, bound 3"),
        ("sync, 1 backup", "parameter server, sync, 1 backup"),
    ],
)
def test_a_rule_is_named_with_what_matters(rule: str, words: str) -> None:
    assert strategy_words("AsyncPS", rule) == words


RELATIVE_PAGE = """
```yaml experiment=alone
repeats: 3
config: {model: M}
```
```yaml experiment=two
repeats: 3
config: {model: M, trainer: {strategy: ddp, devices: 2}}
```
```yaml comparison=throughput
runs: [alone, two]
metric: val/loss
```
```yaml comparison=aim
runs: [alone, two]
metric: val/loss
target: 0.5
```
"""


@pytest.fixture(scope="module")
def relative_notebook(client: "MlflowClient", description: Description) -> Notebook:
    """Two takes 0.6 of the samples and seconds; but seed 3, which misses the target."""
    nb = parse(RELATIVE_PAGE)
    for cell in nb.experiments():
        for seed in (1, 2, 3):
            values = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5] if cell.name == "alone" else [1.0, 0.75, 0.5]
            if cell.name == "two" and seed == 3:
                values = [1.0, 0.9]
            record(
                client, notebook="relative.md", cell=cell.name, seed=seed, values=values,
                config_hash=config_hash(cell.experiment(description)), tags={names.TAG_WORKERS: "1"},
                extra={names.SAMPLES_PER_SECOND: 100.0 if cell.name == "alone" else 160.0},
            )  # fmt: skip
    return nb


def test_a_comparison_shows_multiples_of_one_process(
    reader: RunReader, relative_notebook: Notebook, description: Description
) -> None:
    throughput, aim = (
        compare(reader, "relative.md", relative_notebook, cell, description) for cell in relative_notebook.comparisons()
    )
    assert [row.relative.text("samples_per_second") for row in throughput.rows] == ["baseline", "1.60 (1.60 to 1.60)"]
    assert aim.rows[1].relative.text("seconds") == "> 0.44", "geometric mean of 3, 3 and 2 s, which missed, by 6 s"
    lines = comparison_text(throughput).splitlines()
    assert lines[2].split()[-4:] == ["workers", "x", "one", "process"]
    assert "1.60 (1.60 to 1.60)" in lines[-3]
    assert lines[-1] == "x one process: the figure divided by the figure of alone, with the 95 % interval in brackets."


def test_mlflow_has_what_a_run_took_relative_to_one_process(
    reader: RunReader, relative_notebook: Notebook, description: Description
) -> None:
    def compared() -> list[Comparison]:
        cells = relative_notebook.comparisons()
        return [compare(reader, "relative.md", relative_notebook, cell, description) for cell in cells]

    throughput, aim = compared()
    assert throughput.unrecorded == {}, "the comparison with a target decides"
    assert record_figures(reader, aim) == ""
    stored = {
        (run.cell, run.tags[names.TAG_SEED]): run for run in reader.runs(notebook="relative.md")
    }  # fmt: skip
    expected = {names.SECONDS_TO_TARGET: 3.0, names.SAMPLES_TO_TARGET: 960.0, names.RELATIVE_TIME: 0.5}
    two, missed, alone = stored["two", "1"], stored["two", "3"], stored["alone", "2"]
    assert {name: two.metrics[name] for name in names.COMPARED} == pytest.approx(expected)
    assert alone.metrics[names.RELATIVE_TIME] == pytest.approx(1.0)
    assert not {*names.COMPARED} & missed.metrics.keys()
    assert (two.tags[names.TAG_TARGET], two.tags[names.TAG_BASELINE]) == ("val/loss 0.5", "alone")
    assert [one.unrecorded for one in compared()] == [{}, {}], "nothing is written twice"
