import io
from typing import Any

import pytest

from scalebook.training.base.failures import FailureClass, classify
from scalebook.training.planner.tuning import largest_batch
from scalebook.training.planner.tuning.batch_tries import Bracket, TryResult
from scalebook.training.planner.tuning.largest_batch import HEADER, answer, row
from tests.training.gpu_words import NO_MEMORY, OTHER_ERRORS

OOM = FailureClass.OUT_OF_MEMORY.value


def tried(size: int, step_s: float | None = None, failure: str | None = None, samples: int = 100_000) -> TryResult:
    free = None if failure else 500.0 - size
    return TryResult("a", size, 2, failure, "", samples, step_s, None if failure else float(size), free)


def test_a_line_for_each_try() -> None:
    fits, wall = row(tried(64, 0.016)), row(tried(1024, failure=OOM))
    assert fits.split() == ["64", "128", "fits", "16.0", "125.0", "8,000", "64", "436"]
    assert wall.split() == ["1,024", "2,048", "out", "of", "memory"]
    assert len(fits) <= len(HEADER)


def test_the_answer_says_what_fits_what_is_left_and_where_it_saturates() -> None:
    done = [tried(64, 0.016), tried(128, 0.017), tried(256, 0.033), tried(512, failure=OOM), tried(384, failure=OOM)]
    bracket = Bracket(1000)
    for one in done:
        bracket.note_try(one.batch_size, one.failure is None)
    text = answer(done, bracket, 2, 500)
    assert "Largest batch: 256 samples per worker, 512 in total." in text
    assert (
        "384 samples do not fit. 2 of 5 tries ran out of 500 MB of memory. The largest batch leaves 244 MB free in "
        "each process."
    ) in text
    assert "With 128 samples per worker, throughput is within 10 % of its maximum, 15,515 samples/s." in text


def test_the_training_set_can_be_the_wall() -> None:
    bracket = Bracket(1000)
    bracket.note_try(50, fits=True)
    text = answer([tried(50, 0.1, samples=101)], bracket, 2, None)
    assert "The limit is the training set, not memory: the set has 101 samples." in text
    text = answer([tried(50, 0.1, samples=5000)], bracket, 2, None)
    assert "The search stopped at --most, before memory ran out." in text


def test_nothing_may_fit() -> None:
    bracket = Bracket(1000)
    done = [tried(size, failure=OOM) for size in (8, 4, 2, 1)]
    for one in done:
        bracket.note_try(one.batch_size, fits=False)
    assert answer(done, bracket, 2, 20).startswith("No batch fits: even a batch of 1 per worker is too large. 4 of 4")


FITS = 300


class Tries:
    """Batches above FITS fail with `text`."""

    memory_mb = None

    def __init__(self, text: str) -> None:
        self._text = text

    def run(self, size: int) -> TryResult:
        error = None if size <= FITS else classify(RuntimeError(self._text)).failure_class
        told: dict[str, Any] = {"batch_size": size, "workers": 1, "training_samples": 10_000, "failure": error}
        return TryResult(id="0" * 32, cause=self._text, **told)


def searched(text: str) -> tuple[str, Bracket]:
    bracket, tries = Bracket(65_536, 1), Tries(text)
    return largest_batch._search(tries, bracket, [], io.StringIO()), bracket  # type: ignore[arg-type]


@pytest.mark.parametrize("text", NO_MEMORY)
def test_it_goes_on_where_a_gpu_has_no_memory_left(text: str) -> None:
    status, bracket = searched(text)
    assert status == "finished"
    assert 0.95 * FITS < bracket.fits <= FITS


@pytest.mark.parametrize("text", OTHER_ERRORS)
def test_it_ends_where_something_else_is_wrong(text: str) -> None:
    assert searched(text)[0] == "failed"
