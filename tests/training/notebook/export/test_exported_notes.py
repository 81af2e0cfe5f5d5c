import re
import time

import pytest

from scalebook.training.notebook.export.exported_notes import rendered

PIXEL = "data:image/png;base64,iVBORw0KGgo="


def test_markdown_is_rendered() -> None:
    text = rendered(
        "# Title\n\nsome *words* and ~~others~~\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n- one\n\n```sh\nls <x>\n```\n"
    )
    assert "<h1>Title</h1>" in text
    assert "<em>words</em> and <s>others</s>" in text
    assert "<td>1</td>" in text
    assert "<li>one</li>" in text
    assert "ls &lt;x&gt;" in text


@pytest.mark.parametrize(
    "source",
    [
        "<script>alert(1)</script>",
        "a <b onclick=x>b</b>",
        "<!-- c -->",
        "<svg/onload=alert(1)>",
        "<?php ?>",
        "<![CDATA[x]]>",
    ],
)
def test_html_of_a_note_is_text(source: str) -> None:
    text = rendered(source)
    assert text.count("<") == 2  # of the paragraph
    assert "&lt;" in text


@pytest.mark.parametrize(
    "url",
    ["javascript:alert(1)", "JAVASCRIPT:alert(1)", "&#x6a;avascript:alert(1)", "vbscript:x", "file:///etc/passwd",
     "data:text/html;base64,PHNjcmlwdD4=", "data:image/svg+xml,%3Csvg%3E", "blob:x", "ftp://x", "java%0ascript:x"],
)  # fmt: skip
def test_a_link_leads_to_pages_and_mail_only(url: str) -> None:
    text = rendered(f"[x]({url})\n\n![y]({url})\n\n<{url}>\n")
    assert "<img" not in text
    assert not any(
        f'href="{scheme}:' in text.lower() for scheme in ("javascript", "vbscript", "file", "data", "blob", "ftp")
    )


def test_links_that_a_person_wrote_stay() -> None:
    text = rendered('[a](https://example.org/?a=1&b=2) <me@example.org> [b](#part) [c](other.md "t<")')
    assert '<a href="https://example.org/?a=1&amp;b=2" rel="noopener noreferrer">a</a>' in text
    assert 'href="mailto:me@example.org"' in text
    assert 'href="#part"' in text
    assert '<a href="other.md" title="t&lt;" rel="noopener noreferrer">c</a>' in text


def test_a_picture_within_the_text_is_drawn_and_any_other_is_a_link() -> None:
    assert f'<img src="{PIXEL}" alt="dot">' in rendered(f"![dot]({PIXEL})")
    far = rendered("![a < plot](https://example.org/p.png)")
    assert '<a href="https://example.org/p.png" rel="noopener noreferrer">picture: a &lt; plot</a>' in far
    assert '<a href="plots/p.png"' in rendered("![](plots/p.png)")
    within = rendered("[![badge](https://example.org/b.svg)](https://example.org)")
    assert within == '<p><a href="https://example.org" rel="noopener noreferrer">picture: badge</a></p>\n'


def test_a_text_in_texts_without_end_is_rendered_in_the_end() -> None:
    assert "deep" in rendered("> " * 500 + "deep\n\ndeep")


@pytest.mark.parametrize("source", ["[" * 500_000, "![a](b) " * 60_000, "*a " * 200_000, "|a" * 200_000, "`" * 400_000])
def test_a_note_that_is_all_markup_stands_as_it_is_written(source: str) -> None:
    began = time.process_time()
    assert rendered(source) == f"<pre>{source}</pre>"
    assert time.process_time() - began < 5


def test_pictures_by_the_thousand_take_no_longer_each() -> None:
    began = time.process_time()
    assert rendered("![a](http://x) " * 4_900).count("<a href") == 4_900
    assert time.process_time() - began < 10


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
