"""Claims as sentences."""

from dataclasses import replace

from scalebook.training.notebook.cells import ClaimCell, Ratio
from scalebook.training.notebook.claims.claim_words import claim_sentence

CLAIM = ClaimCell("", "c", ["a"], "base", "samples", "val/loss", 0.3, at_most=0.8)


def words(cell: ClaimCell, *simulated: bool) -> str:
    return claim_sentence(cell, [str(side) for side in cell.sides], simulated)


def test_a_claim_is_a_sentence_with_a_subject() -> None:
    assert words(CLAIM) == "a needs at most 0.8 times the samples of base to bring val/loss to 0.3."
    alone = replace(CLAIM, against=None, runs=["a", "b"], at_most=None, at_least=900.0)
    assert words(alone) == "Each of a and b needs at least 900 samples to bring val/loss to 0.3."
    both = replace(CLAIM, at_least=0.5, runs=["a", "b", "d"], figure="updates_per_second")
    assert words(both) == (
        "Each of a, b and d makes at least 0.5 and at most 0.8 times as many updates per second as base."
    )
    assert words(replace(CLAIM, figure="samples_per_second", against=None)) == (
        "a trains on at most 0.8 samples per second."
    )
    assert words(replace(CLAIM, figure="best")) == "The best val/loss of a is at most 0.8 times that of base."
    assert words(replace(CLAIM, figure="best", runs=["a", "b"], against=None)) == (
        "The best val/loss of each of a and b is at most 0.8."
    )
    assert words(replace(CLAIM, runs=["8 workers"], against="1 worker")) == (
        "8 workers need at most 0.8 times the samples of 1 worker to bring val/loss to 0.3."
    )
    assert words(replace(CLAIM, runs=["1 worker"])).startswith("1 worker needs at most")


def test_seconds_of_virtual_workers_are_called_so() -> None:
    seconds = replace(CLAIM, figure="seconds")
    assert words(seconds, True, True) == (
        "a needs at most 0.8 times the virtual seconds of base to bring val/loss to 0.3."
    )
    assert "the seconds of base" in words(seconds, True, False)


def test_a_claim_of_ratios_names_all_four_sides() -> None:
    one, other = (
        Ratio(of, base, "samples", metric, target, None, None)
        for of, base, metric, target in (("a", "b", "val/loss", 0.3), ("d", "e", "val/error", 0.1))
    )
    ratios = ClaimCell("", "c", [one], other, at_least=1.0)
    assert words(ratios) == (
        "The ratio of a to b in samples to bring val/loss to 0.3 is at least 1 times the ratio of d to e in samples "
        "to bring val/error to 0.1."
    )
    assert words(replace(ratios, against=None)) == "a needs at least 1 times the samples of b to bring val/loss to 0.3."


def test_what_is_not_filled_in_is_a_gap() -> None:
    empty = ClaimCell("", "c", ["a"], None, "samples", "", None)
    assert words(empty) == "a needs at most … samples to bring … to …."
