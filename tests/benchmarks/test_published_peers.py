"""Published times of peers are what the planner predicts, and the committed comparisons are these."""

import pytest

from benchmarks.published_peers import CELLS, WITHIN
from scalebook.training.planner.reliability import read_comparisons


def test_cells_are_within_the_goal() -> None:
    assert sum(WITHIN[0] <= cell.ratio <= WITHIN[1] for cell in CELLS) == len(CELLS) == 6


def test_the_times_are_those_of_bytes_and_links() -> None:
    """By hand: what computes, and the bytes of the busiest node over 1.175 GB/s."""
    predicted = {cell.name: cell.predicted_s for cell in CELLS}
    assert predicted["ResNet-50, 32 nodes, SGP"] == pytest.approx(0.271 + 0.1024 / 1.175, rel=1e-3)
    assert predicted["ResNet-50, 32 nodes, Local SGD"] == pytest.approx(
        0.271 + 2 * 31 / 32 * 0.1024 / 1.175 / 12, rel=1e-2
    )


def test_what_is_committed_is_what_they_give() -> None:
    (source,) = [one for one in read_comparisons().sources if one.command == "python -m benchmarks.published_peers"]
    assert [(cell.what, cell.rates) for cell in source.cells] == [(cell.name, round(cell.ratio, 3)) for cell in CELLS]
