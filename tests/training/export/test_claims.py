"""A claim in an exported notebook."""

from scalebook.training.claims.evidence import Witness
from scalebook.training.claims.judging import judge_all
from scalebook.training.export.claims import claim_blocks
from scalebook.training.export.document import CellHead, DataTable, Document, Remark
from scalebook.training.export.html_file import as_html
from scalebook.training.export.markdown_file import as_markdown
from scalebook.training.notebook.parse import parse
from scalebook.training.tracking.reading import RunReader
from tests.training.export.conftest import TEXT, Exported

CLAIM = """
```yaml claim=low-enough
runs: pixelcnn-async-2
figure: best
metric: val/bits_per_dim
at_most: 2.5
```
"""


def test_a_claim_is_exported_with_its_verdict_and_why(exported: Exported) -> None:
    """The experiment has two seeds, and three are the fewest."""
    nb = parse(TEXT + CLAIM)
    reader = RunReader(exported.workspace.tracking_uri())
    witness = Witness(exported.workspace, reader, "first-steps.md", nb, exported.description)
    blocks = claim_blocks(judge_all(witness)[nb.claims()[0].name])
    head, statement, table, lock, why = blocks[:5]
    assert head == CellHead("claim", "low-enough", ["not resolved"])
    assert statement == Remark("best val/bits_per_dim: at most 2.5")
    assert isinstance(table, DataTable)
    assert table.head == ["experiment", "seeds", "best", "verdict"]
    assert [list(row) for row in table.rows] == [["pixelcnn-async-2", "2", "2.097", "not resolved"]]
    assert lock == Remark("Runs of pixelcnn-async-2 do not say which claims stood when they began.")
    assert why == Remark("pixelcnn-async-2: 2 seeds, and 3 are the fewest")
    document = Document("Page", "page.md", nb.text, "today", blocks)
    assert '<span class="chip not-resolved">not resolved</span>' in as_html(document)
    assert (
        "## claim low-enough (not resolved)\n\nbest val/bits\\_per\\_dim: at most 2.5"
        in as_markdown(document, "p").text
    )
