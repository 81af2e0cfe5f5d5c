from scalebook.app.shared import html


def test_text_from_outside_is_escaped() -> None:
    nasty = "<script>alert('x')</script>"
    made = html.table([nasty], [[html.text(nasty), html.link(nasty, '"><b>'), html.number(nasty)]])
    assert "<script>" not in made
    assert "<b>" not in made
    assert "&lt;script&gt;" in made


def test_missing_figures_are_a_dash() -> None:
    assert html.number("") == html.Cell("–", "num dim")
    assert html.number("2.1", best=True) == html.Cell("2.1", "num best")


def test_a_chip_has_its_states_class() -> None:
    assert html.chip("failed") == '<span class="sb-chip sb-failed">failed</span>'
    assert html.chip("new", "not run yet") == '<span class="sb-chip sb-new">not run yet</span>'
