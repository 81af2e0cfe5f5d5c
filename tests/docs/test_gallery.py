"""The gallery shows what runs have recorded, and nothing else."""

from pathlib import Path

import pytest

from docs.generate import gallery
from scalebook.training.experiments.description import Description
from scalebook.training.notebook.claims.written_tables import written
from scalebook.training.notebook.parse import parse

NOTEBOOKS = sorted(gallery.NOTEBOOKS.glob("*.md"))


@pytest.fixture(scope="module")
def pages(description: Description) -> dict[str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gallery, "described", lambda: description)
        gallery.shown.cache_clear()
        return gallery.pages()


def test_each_notebook_has_a_page_and_an_entry(pages: dict[str, str]) -> None:
    assert len(NOTEBOOKS) == 10
    for path in NOTEBOOKS:
        address = f"gallery/{path.stem}.html"
        assert (address in pages) != (gallery.RECORDED / f"{path.stem}.html").exists()
        assert f"]({path.stem}.html)" in pages[gallery.PAGE]


def test_results_are_those_that_runs_have_written(pages: dict[str, str]) -> None:
    page = pages["gallery/staleness.html"]
    assert "<span>4 workers: 2.13 (1.93 – 2.36)</span>" in page
    assert "The runs wrote this result into the notebook" in page
    assert ">runs not here</span>" in page
    assert (
        "**refuted**: classifier-keeps: samples to val/loss 0.25: at most 1.25 x that of 1 worker"
        in pages[gallery.PAGE]
    )


def test_a_notebook_without_recorded_results_is_not_run_and_says_so(pages: dict[str, str]) -> None:
    page = pages["gallery/sparse.html"]
    assert "7 claims have no runs here" in page
    assert ">not run</span>" in page
    assert ">supported</span>" not in page
    assert gallery.NOT_RECORDED in pages[gallery.PAGE].partition("(sparse.html)")[2].partition("##")[0]


def test_a_table_that_was_changed_by_hand_is_no_result() -> None:
    text = (gallery.NOTEBOOKS / "staleness.md").read_text(encoding="utf-8")
    assert "classifier-keeps" in written(parse(text))
    assert "classifier-keeps" not in written(parse(text.replace("2.13 | 1.93", "1.13 | 0.93")))


@pytest.mark.parametrize("path", sorted(gallery.RECORDED.glob("*.html")), ids=lambda path: path.stem)
def test_an_exported_page_is_of_the_notebook_as_it_is(path: Path) -> None:
    """If the notebook has changed, `make screenshots` makes its page again; until then it is deleted."""
    assert gallery.of_text(path) == (gallery.NOTEBOOKS / f"{path.stem}.md").read_text(encoding="utf-8")


def test_exported_pages_are_small() -> None:
    assert sum(path.stat().st_size for path in gallery.RECORDED.glob("*.html")) < 5_000_000
