import math
import os

import psutil
import pytest
import torch

from scalebook.training.callbacks.computed_figures import (
    PeakMemory,
    Window,
    by_worker,
    gradients,
    pss_bytes,
    pushes,
    shares,
    staleness,
)
from scalebook.training.callbacks.metric_summary import MetricSummary
from scalebook.training.engine.coordination.measures import Counts, PushMeasures, StalenessHistogram, WorkerTimes
from scalebook.training.tracking import names


def test_rates_are_of_the_window_not_of_the_whole_run() -> None:
    window = Window()
    window.open_window(0.0, Counts(0, 0), {})
    assert window.rates(2.0, Counts(10, 100), {})[names.UPDATES_PER_SECOND] == 5
    found = window.rates(3.0, Counts(30, 500), {0: Counts(20, 300), 1: Counts(10, 200)})
    assert (found[names.UPDATES_PER_SECOND], found[names.SAMPLES_PER_SECOND]) == (20, 400)
    assert found["worker_1/perf/updates_per_second"] == 10
    later = window.rates(4.0, Counts(40, 600), {0: Counts(28, 390), 1: Counts(12, 210)})
    assert (later["worker_0/perf/updates_per_second"], later["worker_1/perf/samples_per_second"]) == (8, 10)
    assert window.rates(4.0, Counts(50, 600), {}) == {}


def test_shares_are_over_all_workers_and_add_up_to_one() -> None:
    times = [WorkerTimes(3.0, 1.0, 1.0, 0.0, 5, 5), WorkerTimes(4.0, 0.0, 0.0, 1.0, 5, 5)]
    assert shares(times) == {
        names.COMPUTE_SHARE: 0.7, names.WAIT_SHARE: 0.1, names.COMMUNICATE_SHARE: 0.1, names.DATA_SHARE: 0.1,
    }  # fmt: skip
    assert shares([]) == {}


def test_staleness_of_a_known_histogram() -> None:
    counts = torch.zeros(2, 64, dtype=torch.int64)
    counts[0, 0], counts[1, 1], counts[1, 10] = 50, 48, 2
    found = staleness(StalenessHistogram(counts))
    assert found[names.STALENESS_MEAN] == pytest.approx(0.68)
    assert found[names.STALENESS_P95] == 1
    assert staleness(None) == {}


def test_pushes_are_summed_and_their_age_and_drift_averaged() -> None:
    """Worker 0 has pushed to two shards, 3 and 1 times as often as worker 1."""
    rows = [
        PushMeasures(0, 0, 0, 30, 4, 0, 0.1, 3.0),
        PushMeasures(1, 0, 0, 10, 1, 2, 0.5, 3.0),
        PushMeasures(0, 0, 1, 30, 0, 0, 0.1, 4.0),
        PushMeasures(1, 0, 1, 10, 0, 0, 0.5, 4.0),
    ]
    assert pushes(rows) == {
        names.DROPPED: 5, names.DUPLICATES: 2, names.STALENESS_SECONDS: pytest.approx(0.2), names.DRIFT: 5,
    }  # fmt: skip
    assert pushes([]) == {}
    unseen = PushMeasures(0, 0, 0, 0, 0, 0, math.nan, math.nan)
    assert pushes([unseen]) == {names.DROPPED: 0, names.DUPLICATES: 0}
    assert pushes([unseen, rows[1]])[names.DRIFT] == 3, "a worker that has not pushed yet has no say"


def test_every_worker_has_its_own_figures_where_there_are_several() -> None:
    times = [WorkerTimes(3.0, 1.0, 0.0, 0.0, 5, 5), WorkerTimes(0.0, 0.0, 0.0, 0.0, 0, 0)]
    histogram = StalenessHistogram(torch.tensor([[1, 1], [0, 0]]))
    assert by_worker(times, histogram, [PushMeasures(0, 0, 0, 2, 1, 0, 0.5, math.nan)]) == {
        "worker_0/perf/compute_share": 0.75, "worker_0/perf/wait_share": 0.25, "worker_0/perf/communicate_share": 0,
        "worker_0/perf/data_share": 0, "worker_0/ps/dropped": 1, "worker_0/ps/duplicates": 0,
        "worker_0/ps/staleness_seconds": 0.5, "worker_0/ps/staleness_mean": 0.5,
    }  # fmt: skip
    assert by_worker(times[:1], histogram, []) == {}


def test_gradients_are_those_of_all_workers_for_an_update() -> None:
    times = [WorkerTimes(3.0, 1.0, 1.0, 0.0, 3, 5, gradients=12), WorkerTimes(4.0, 0.0, 0.0, 1.0, 3, 5, gradients=8)]
    assert gradients(times, 5) == {names.GRADIENTS_PER_UPDATE: 4}
    under_way = [WorkerTimes(3.0, 1.0, 1.0, 0.0, 3, 5, gradients=4)] * 2
    assert gradients(under_way, 6) == {}, "each is an update"
    assert gradients(under_way, 5) == {names.GRADIENTS_PER_UPDATE: 1.6}
    assert gradients([WorkerTimes(3.0, 1.0, 1.0, 0.0, 3, 5)], 5) == {}, "where nobody counts them"


def test_rates_on_a_virtual_clock_wait_for_steps_enough() -> None:
    """16 workers of a step of 16 samples each 0.1 s: 160 a second by each, wherever a window ends."""
    window, found = Window(fewest=20), []
    window.open_window(0.0, Counts(0, 0), {})
    for now in (0.35, 0.75, 2.05, 2.2, 4.35):
        steps = int(now / 0.1)
        workers = {worker: Counts(steps, 16 * steps) for worker in range(16)}
        found.append(window.rates(now, Counts(16 * steps, 256 * steps), workers))
    assert [bool(rates) for rates in found] == [False, False, True, False, True]
    for rates in found:
        assert all(value == pytest.approx(160, rel=0.05) for name, value in rates.items() if "samples" in name[-20:]
                   and name.startswith("worker_"))  # fmt: skip


@pytest.mark.alone
def test_memory_is_the_proportional_set_of_this_process() -> None:
    """Each fork of the same tests has a part of the pages that they share: it grows when another ends, by 100 MB and
    more, between two looks."""
    cpu, memory = torch.device("cpu"), PeakMemory()
    before = memory.peak(cpu)
    assert abs(before - psutil.Process().memory_full_info().pss) < 5e6
    held = torch.ones(25_000_000)
    assert memory.peak(cpu) == before, "not looked at again so soon"
    assert memory.peak(cpu, at_once=True) > before + 90e6
    del held
    assert memory.peak(cpu, at_once=True) > before + 90e6, "the most so far"


def test_pages_shared_with_others_are_counted_once() -> None:
    """Of 100 MB that parent and child share, each has half: the resident set of each would have all."""
    held = torch.ones(25_000_000)
    read_end, write_end = os.pipe()
    if (child := os.fork()) == 0:
        os.write(write_end, str(pss_bytes()).encode())
        os._exit(0)
    told = int(os.read(read_end, 100))
    os.waitpid(child, 0)
    os.close(read_end)
    os.close(write_end)
    assert told < psutil.Process().memory_info().rss - 40e6
    assert held[0] == 1


def test_memory_on_a_gpu_is_what_is_allocated_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 7 if device.index == 1 else 0)
    assert PeakMemory().peak(torch.device("cuda", 1)) == 7


def test_best_and_final_know_which_way_is_better_and_pass_over_nan() -> None:
    summary = MetricSummary()
    for loss, accuracy in ((2.0, 0.5), (1.0, 0.9), (math.nan, 0.8)):
        metrics = {
            "val/loss": torch.tensor(loss),
            "val/accuracy": torch.tensor(accuracy),
            "train/loss": torch.tensor(0.0),
        }
        summary.validated(metrics, [("val/loss", None), ("val/accuracy", "max")])
    points = summary.points()
    assert points == {"best/val/loss": 1.0, "best/val/accuracy": pytest.approx(0.9)}, "the final ones are the latest"
    assert summary.finals()["final/val/accuracy"] == pytest.approx(0.8)
    assert math.isnan(summary.finals()["final/val/loss"])
    assert "best/train/loss" not in points
