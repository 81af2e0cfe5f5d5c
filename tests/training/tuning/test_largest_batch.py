"""The search for the largest batch, over tries that end as those of a GPU do at its edge."""

import io
from typing import Any

import pytest

from scalebook.training.failures import classify
from scalebook.training.tuning import largest_batch
from scalebook.training.tuning.batch_tries import Tried
from scalebook.training.tuning.bracket import Bracket
from tests.training.gpu_words import NO_MEMORY, OTHER_ERRORS

FITS = 300


class Tries:
    """Batches above FITS fail with `text`."""

    memory_mb = None

    def __init__(self, text: str) -> None:
        self._text = text

    def run(self, size: int) -> Tried:
        error = None if size <= FITS else classify(RuntimeError(self._text)).failure_class
        told: dict[str, Any] = {"batch_size": size, "workers": 1, "training_samples": 10_000, "failure": error}
        return Tried(id="0" * 32, cause=self._text, **told)


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
