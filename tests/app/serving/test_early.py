import re

import pytest

from scalebook.app.navigation import PLACES
from scalebook.app.serving import early


@pytest.mark.parametrize("part", sorted({*early.FRAME, *(part for parts in early.NEEDED.values() for part in parts)}))
def test_streamlit_has_a_library_of_this_name(part: str) -> None:
    assert early.library(part) is not None


def test_every_page_has_a_list() -> None:
    assert {page for page, _ in early.NEEDED} == {f"/{place.path}" for place in PLACES}


def named(path: str, query: bytes = b"") -> list[str]:
    return re.findall(r"static/js/([\w-]+)\.", early.links(path, query).decode())


def test_a_page_names_what_it_draws_with_and_no_more() -> None:
    assert "PlotlyChart" in named("/runs", b"run=1")
    assert "DataFrame" not in named("/runs", b"run=1")
    assert "DataFrame" in named("/runs", b"state=failed")
    assert "PlotlyChart" not in named("/compare")
    assert "Selectbox" in named("/search", b"notebook=a&experiment=b")
    assert "Input" in named("/compose"), "what the library of a box for text needs itself"
    assert "react-dom" not in named("/compose"), "the frame's own"
    assert len(set(named("/compose"))) == len(named("/compose"))
    assert early.links("/media/x", b"") == b""


def test_charts_are_evaluated_early_where_the_address_says_that_there_are_some() -> None:
    charts = early.library(early.CHARTS)
    assert charts is not None
    evaluated = f'import("./static/js/{charts.name}")'
    there = [("/runs", b"run=1"), ("/search", b"search=1"), ("/compare", b"runs=1,2")]
    assert all(evaluated in early.links(path, query).decode() for path, query in there)
    without = [("/runs", b""), ("/search", b""), ("/compare", b""), ("/plan", b""), ("/", b"")]
    assert not any("import(" in early.links(path, query).decode() for path, query in without)
