"""Formulas of notes in the exported page: drawn without a script or a font, and what is none left as it is."""

import re
import time

import pytest

from scalebook.training.export.notes import rendered


def formulas(source: str) -> list[str]:
    """The drawn ones, by their source."""
    return re.findall(
        r'<svg class="formula" role="img" aria-label="([^"]*)"[^>]*><path fill="currentColor" d="M', rendered(source)
    )


@pytest.mark.parametrize(
    ("source", "drawn"),
    [
        ("that is $<1$, and $x^2 + \\frac{a}{b}$.", ["&lt;1", "x^2 + \\frac{a}{b}"]),
        ("$$\n\\sum_i x_i\n\\leq y\n$$\n", ["\\sum_i x_i \\leq y"]),
        ("- in a list\n\n  $$\n  \\sqrt{2}\n  $$\n\nafter", ["\\sqrt{2}"]),
        ("> $$\n> a\n> $$\n", ["a"]),
        ("double $$\\alpha_t$$ dollars", ["\\alpha_t"]),
        ("| a | b |\n|---|---|\n| $x$ | 2 |\n", ["x"]),
        ("`$x$`, \\$5, and one $ alone", []),
        ("    $$\n    x\n    $$\n", []),
        ("$$\nnever closed", []),
        ("$ $", []),
    ],
)
def test_formulas_are_drawn(source: str, drawn: list[str]) -> None:
    assert formulas(source) == drawn


def test_it_stands_on_the_line_and_has_the_colour_of_the_text() -> None:
    found = rendered("$x_{t+1}$")
    assert re.search(r'style="width:\d\.\d+em;height:\d\.\d+em;vertical-align:-0\.\d+em"', found)
    assert "$" not in found


@pytest.mark.parametrize("formula", [r"\nosuch{x}", r"\frac{a}", "{" * 900, "x" * 2000, "<script>"])
def test_what_cannot_be_drawn_stands_as_it_is_written(formula: str) -> None:
    began = time.process_time()
    found = rendered(f"before ${formula}$ after")
    assert time.process_time() - began < 20
    assert "<script" not in found
    assert "<svg" in found if formula == "<script>" else f'<code class="formula">{formula}</code>' in found


def test_a_note_that_is_all_dollars_is_not_parsed() -> None:
    assert rendered("$x$ " * 1001).startswith("<pre>")
