"""The exported page in a browser: its tables in full at the width of a laptop, its formulas drawn."""

from pathlib import Path

import pytest
from playwright.sync_api import Page

from scalebook.training.notebook.export.document import CellHead, DataTable, Document, UserMarkdown
from scalebook.training.notebook.export.html_file import as_html

pytestmark = pytest.mark.thorough

HEAD = [
    "experiment", "strategy", "workers x batch", "learning rate", "best", "to 0.97: updates", "samples", "seconds",
    "updates/s", "samples/s", "staleness mean", "p95",
]  # fmt: skip
ROW = [
    "classifier-async-2", "parameter server, async, pushes topk 0.01, warm-up 100", "2 x 32", "0.001",
    "0.9889 ± 0.0069 †", "135 ± 112", "4,311 ± 3,570", "0.409 ± 0.222", "1,234 ± 12", "39,488 ± 400", "0.94", "2",
]  # fmt: skip
CLIPPED = "[...document.querySelectorAll('.wide')].map(one => one.scrollWidth - one.clientWidth)"


def test_the_widest_table_is_in_sight_and_formulas_have_a_size(page: Page, tmp_path: Path) -> None:
    note = UserMarkdown("# Formulas\n\nPrices $<1$ and\n\n$$\n\\sum_i x_i\n$$\n")
    table = DataTable(HEAD, [ROW] * 3, range(2, len(HEAD)), 0)
    document = Document("Formulas", "a.md", note.source, "today", [note, CellHead("comparison", "c"), table])
    path = tmp_path / "exported.html"
    path.write_text(as_html(document), encoding="utf-8")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(path.as_uri())
    assert page.evaluate(CLIPPED) == [0]
    boxes = [one.bounding_box() for one in page.locator("svg.formula").all()]
    assert [box is not None and box["width"] > 10 and box["height"] > 8 for box in boxes] == [True, True]
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == 400, "the table moves by itself"
