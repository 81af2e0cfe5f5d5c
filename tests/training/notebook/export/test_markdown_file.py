import xml.etree.ElementTree as ElementTree

import pytest

from scalebook.training.notebook.export.document import Block, Chart, DataTable, Document, Facts, Remark, SourceText
from scalebook.training.notebook.export.exported_notes import rendered
from scalebook.training.notebook.export.markdown_file import as_markdown, plain
from scalebook.training.notebook.parse import parse
from tests.training.notebook.export.conftest import Exported


def test_the_text_is_a_notebook_with_the_same_cells(exported: Exported) -> None:
    made = as_markdown(exported.document, "first-steps-pictures")
    again, before = parse(made.text), exported.stored.notebook
    assert [one.name for one in again.experiments()] == [one.name for one in before.experiments()]
    assert [one.config for one in again.experiments()] == [one.config for one in before.experiments()]
    assert [one.runs for one in again.comparisons()] == [["pixelcnn-async-2", "earlier"]]
    assert [one.body for one in again.searches()] == [one.body for one in before.searches()]


def test_results_are_tables_and_charts_are_files(exported: Exported) -> None:
    made = as_markdown(exported.document, "my pictures")
    assert "| 1 | finished | 2.047 | 2.047 |" in made.text
    assert list(made.pictures) == [f"chart-{i}.svg" for i in range(1, 6)]
    for name, svg in made.pictures.items():
        assert f"](my%20pictures/{name})" in made.text
        root = ElementTree.fromstring(svg)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "prefers-color-scheme: dark" in (root[0].text or "")


@pytest.mark.parametrize(
    "words", ["<script>x</script>", "[a](javascript:x)", "a | b", "`x`", "*a* _b_ \\", "![a](b)", "a\nb"]
)
def test_words_are_no_markdown(words: str) -> None:
    text = rendered(plain(words))
    assert not any(f"<{tag}" in text for tag in ("script", "a ", "em", "code", "img", "strong"))
    table = DataTable(["h"], [[words, "end"]], best=None)
    drawn = as_markdown(Document("t", "t.md", "", "now", [table]), "p").text
    assert rendered(drawn).count("<td>") == 1  # a table has no more cells than its head


def test_a_fence_is_longer_than_any_within() -> None:
    blocks: list[Block] = [
        SourceText("Config", "a: '```'\n````\n", "yaml"),
        Facts([("a", "<b>")]),
        Remark("x"),
        Chart("<svg ></svg>", "t"),
    ]
    text = as_markdown(Document("T", "t.md", "", "now", blocks), "p").text
    assert "`````yaml\na: '```'\n````\n`````" in text
    assert "- a: **\\<b\\>**" in text
    assert text.startswith("# T\n")
