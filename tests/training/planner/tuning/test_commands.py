"""Both tests as a person calls them: real jobs of a real supervisor, on few digits, under every strategy."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import yaml
from scalebook.training.base.workspace import Workspace
from scalebook.training.cli.main import main as scalebook
from scalebook.training.jobs.job_folder import ENDED
from scalebook.training.jobs.job_requests import all_jobs
from scalebook.training.jobs.supervisor_handle import hold_supervisor
from scalebook.training.planner.tuning import largest_batch, rates
from scalebook.training.planner.tuning.rate_curve import RateCurve
from scalebook.training.tracking import names
from tests.shared_files import Prepared
from tests.training.benches import clear
from tests.training.interrupting import interrupted
from tests.training.runs import reader

pytestmark = pytest.mark.long

DEADLINE_S = 110
CONFIG: dict[str, Any] = {
    "model": {"class_path": "MLPClassifier", "init_args": {"hidden": 32}},
    "data": {"class_path": "Digits", "init_args": {"batch_size": 16, "limit": 300}},
    "optimizer": {"class_path": "SGD", "init_args": {"lr": 0.1}},
    "trainer": {"accelerator": "cpu", "max_epochs": 3},
}
STRATEGIES = {
    "single": [],
    "ddp": ["--trainer.strategy", "ddp", "--trainer.devices", "2"],
    "async": ["--trainer.strategy", "AsyncPS", "--trainer.strategy.workers", "2"],
}
SYNC = ["--trainer.strategy.rule", "sync"]
BOUNDED = ["--trainer.strategy.rule", "bounded", "--trainer.strategy.rule.bound", "1"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, prepared: Prepared) -> Iterator[Workspace]:
    """A workspace whose supervisor stays until the module's tests are done."""
    made = prepared.into(Workspace(tmp_path_factory.mktemp("shop")))
    (made.root / "x.yaml").write_text(yaml.dump(CONFIG), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.setenv("SCALEBOOK_WORKSPACE", str(made.root))
        with hold_supervisor(made):
            yield made
        clear(made)  # it would stay for another 30 s


def words(shop: Workspace, strategy: str, *more: str) -> list[str]:
    return ["-c", str(shop.root / "x.yaml"), *STRATEGIES[strategy], *more]


def range_test(
    shop: Workspace, capsys: pytest.CaptureFixture[str], strategy: str, *more: str, updates: int = 120
) -> RateCurve:
    """From 0.001 to 100. What was printed, recorded and kept is what the curve says."""
    code = rates.main(words(shop, strategy, *more, "--from", "1e-3", "--to", "100", "--updates", str(updates)))
    printed = capsys.readouterr().out
    assert code == 0, printed
    (job,) = [one for one in all_jobs(shop) if one.id[:8] in printed]
    curve = rates.curve_of(job)
    assert curve is not None
    found = curve.suggestion()
    assert found.steepest is not None
    assert f"learning rate {found.steepest:.2g}, where the loss falls fastest" in printed
    assert "1.0e-03" in printed
    record = reader(shop).run(job.id)
    assert record.metrics[names.RATE_STEEPEST] == pytest.approx(found.steepest)
    assert (record.status, record.tags[names.TAG_TEST]) == ("FINISHED", "learning rates")
    for name in (names.RATES_JSON, names.RATES_PICTURE):
        assert (shop.artifacts / job.id / "artifacts" / name).stat().st_size > 100
    assert job.request().strategy == {"single": "single", "ddp": "ddp", "async": "AsyncPS"}[strategy]
    return curve


@pytest.mark.sampled
@pytest.mark.parametrize(("strategy", "more"), [("single", []), ("ddp", []), ("async", SYNC)])
def test_a_range_test_of_digits(
    strategy: str, more: list[str], shop: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of strategies whose losses are the same in every run."""
    curve = range_test(shop, capsys, strategy, *more)
    steepest, largest = curve.suggestion().steepest, curve.suggestion().largest
    assert steepest is not None
    assert largest is not None
    assert 0.005 < steepest < largest < 20
    assert max(curve.losses) > 1.5 * curve.losses[0]


@pytest.mark.thorough
def test_a_range_test_of_workers_that_wait_a_little(shop: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    """Whose gradient comes first is chance, and with it the curve. Whatever the order: worker 0 makes half of the
    updates, the loss falls, then explodes, and what is suggested lies before that."""
    curve = range_test(shop, capsys, "async", *BOUNDED, updates=400)
    assert curve.rates == sorted(curve.rates)
    before_the_last = 399 * math.log(curve.rates[-1] / 1e-3, 1e5)
    assert abs(len(curve.rates) - before_the_last / 2) < 3
    assert curve.diverged
    assert min(curve.smoothed()) < 0.8 * curve.losses[0] < 1.2 * curve.losses[0] < max(curve.losses)
    steepest, largest = curve.suggestion().steepest, curve.suggestion().largest
    assert steepest is not None
    assert largest is not None
    assert curve.rates[0] < steepest <= largest < curve.rates[-1] < 100


def test_a_range_test_without_an_answer(shop: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert rates.main(words(shop, "single", "--from", "1e-9", "--to", "1e-8", "--updates", "20")) == 1
    assert "no suggestion: the loss does not fall between 1e-09 and " in capsys.readouterr().out


@pytest.mark.sampled
@pytest.mark.parametrize(("strategy", "wall"), [("single", 300), ("ddp", 150), ("async", 150)])
def test_the_training_set_is_the_wall_of_a_small_model(
    strategy: str, wall: int, shop: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    code = largest_batch.main(words(shop, strategy, "--multiple-of", "50", "--memory-mb", "4000"))
    printed = capsys.readouterr().out
    assert code == 0, printed
    workers = 300 // wall
    assert f"Largest batch: {wall} samples per worker, 300 in total. The limit is the training set" in printed
    assert printed.count("fits") == (3 if wall == 150 else 4)  # 50, 100, 150 or 50, 100, 200, 300
    parent = newest_parent(shop)
    record = reader(shop).run(parent)
    assert record.metrics[names.LARGEST_GLOBAL] == 300
    told = json.loads((shop.artifacts / parent / "artifacts" / names.BATCHES_JSON).read_text())
    assert (told["largest"], [one["failure"] for one in told["tries"]]) == (wall, [None] * len(told["tries"]))
    assert all(one["step_s"] > 0 and one["workers"] == workers for one in told["tries"])


def newest_parent(shop: Workspace) -> str:
    return next(trial.search for job in all_jobs(shop) if (trial := job.request().trial) is not None)


@pytest.mark.thorough
def test_memory_is_the_wall_of_a_wide_model(shop: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    """64 channels of 8 x 8 floats are 16 kB a sample and layer; 60 MB hold some 200 samples of both passes."""
    wide = ("--model", "ConvClassifier", "--model.width", "64", "--data.limit", "1400", "--updates", "2")
    code = largest_batch.main(words(shop, "async", *wide, "--memory-mb", "60", "--multiple-of", "128"))
    printed = capsys.readouterr().out
    assert code == 0, printed
    told = json.loads((shop.artifacts / newest_parent(shop) / "artifacts" / names.BATCHES_JSON).read_text())
    sizes = {one["batch_size"]: one["failure"] for one in told["tries"]}
    walls = [size for size, failure in sizes.items() if failure == "out of memory"]
    assert walls == sorted(walls, reverse=True), "never the same or a larger one again"
    assert walls, printed
    assert 128 <= told["largest"] < walls[-1] <= 700
    assert f"{len(walls)} of {len(sizes)} tries ran out of 60 MB of memory." in printed


def test_a_first_try_above_the_training_set(shop: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    code = largest_batch.main(words(shop, "single", "--data.limit", "5", "--memory-mb", "4000"))
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert "Largest batch: 5 samples per worker, 5 in total. The limit is the training set" in printed


def test_mistakes_are_said_before_anything_starts(shop: Workspace) -> None:
    before = len(all_jobs(shop))
    for main, more, message in (
        (rates.main, ["--from", "1", "--to", "0.1"], "--to: is 0.1, which is not above --from 1"),
        (rates.main, ["--updates", "5"], "--updates: is 5. Use at least 20"),
        (rates.main, ["--model.hiden", "3"], "hiden"),
        (
            largest_batch.main,
            ["--multiple-of", "64", "--most", "32"],
            "--multiple-of: is 64, which is more than --most 32",
        ),
    ):
        with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
            main(words(shop, "single", *more))
    assert len(all_jobs(shop)) == before


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["rates", "largest-batch"])
def test_ctrl_c_ends_what_it_started(command: str, shop: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    """An endless job: a range test of a million updates; tries of as many."""
    known = {job.id for job in all_jobs(shop)}

    def trains() -> bool:
        return any(job.id not in known and job.state() == "running" and job.progress() for job in all_jobs(shop))

    called = ["search", command, *words(shop, "async", "--updates", "1000000")]
    assert interrupted(lambda: scalebook(called), trains, DEADLINE_S) == 130
    assert "Interrupted" in capsys.readouterr().out
    started = [job for job in all_jobs(shop) if job.id not in known]
    assert [job.state() for job in started] == ["stopped"]
    assert all(job.state() in ENDED for job in all_jobs(shop))
    parents = {trial.search for job in started if (trial := job.request().trial) is not None}
    assert [reader(shop).run(one).status for one in parents] == (["KILLED"] if command == "largest-batch" else [])
