import hashlib

import pytest

from scalebook.training.notebook.claims.evidence import EvidenceReader
from scalebook.training.notebook.claims.judging import judge_all
from scalebook.training.notebook.export.document import (
    MOST_CODE,
    CellHead,
    Chart,
    DataTable,
    Document,
    ExportedAnswer,
    Remark,
    SourceText,
    Summary,
    UserMarkdown,
    claim_headline,
    cut_lines,
)
from scalebook.training.notebook.export.gathering import WRITTEN as WRITTEN_BY_RUNS
from scalebook.training.notebook.export.gathering import claim_blocks, environment_blocks, gather, published
from scalebook.training.notebook.export.html_file import as_html
from scalebook.training.notebook.export.markdown_file import as_markdown
from scalebook.training.notebook.parse import parse
from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import NoRuns, RunReader, RunRecord
from tests.training.notebook.export.conftest import TEXT, Exported, written


def test_blocks_stand_in_the_order_of_the_notebook(exported: Exported) -> None:
    heads = [(one.kind, one.name) for one in exported.document.blocks if isinstance(one, CellHead)]
    assert heads == [
        ("experiment", "pixelcnn-async-2"), ("experiment", "earlier"), ("experiment", "never"), ("comparison", "both"),
        ("search", "batch-size"),
    ]  # fmt: skip
    assert (exported.document.title, exported.document.name) == ("First steps", "first-steps.md")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/home/alice/data", "~/data"), ("root: '/home/alice'", "root: '~'"), ("/Users/Bob B/x", "~ B/x"),
        ("file:///home/alice/x", "file://~/x"), ("/root/x", "~/x"), ("/rooted/x", "/rooted/x"),
        ("a /root, b", "a ~, b"),
        ("https://example.org/home/alice", "https://example.org/home/alice"), ("/homes/x", "/homes/x"),
        ("/work/space/data/a.csv", "./data/a.csv"), ("/work/spaces", "/work/spaces"),
        ("http://host:8080/@me", "http://host:8080/@me"),
        ("storage: postgresql://me:s3cret@host/db?password=s3cret&a=b", "storage: postgresql://me:***@host/db?password=***&a=b"),
    ],
)  # fmt: skip
def test_folders_of_a_machine_are_shortened(text: str, left: str) -> None:
    document = Document("t", "n.md", text, "now", [Remark(text), SourceText("a", text, "")])
    found = published(document, {"/work/space": ".", "/": "!"})
    assert found == Document("t", "n.md", left, "now", [Remark(left), SourceText("a", left, "")])


def test_runs_of_several_versions_are_counted_and_a_strange_tag_is_left_out() -> None:
    def run(told: str) -> RunRecord:
        return RunRecord("1", "", "0", "FINISHED", 0.0, 1.0, tags={names.TAG_VERSIONS: told})

    runs = [
        run('{"torch": "2.9.0"}'),
        run('{"torch": "2.8.0"}'),
        run('{"torch": "2.9.0"}'),
        run("[1]"),
        run("{"),
        run("[" * 10**5),
    ]
    blocks = environment_blocks(runs, parse("# x\n"), "my notes.md", ["mine.models"])
    said = str(blocks)
    assert "('PyTorch', '2.9.0 (2 runs), 2.8.0 (1 run)')" in said
    assert "mine.models" in said
    assert "scalebook notebook check 'my notes.md'" in said
    assert "notebook run" not in said  # it has no experiment


def test_a_long_config_is_cut_at_a_line() -> None:
    text = "key: value\n" * 10_000
    found = cut_lines(text)
    assert len(found) < MOST_CODE + 100
    assert found.endswith("more characters in the notebook")
    assert cut_lines("short") == "short"


def test_a_comparison_of_very_many_names_shows_the_first_and_each_axis_once(exported: Exported) -> None:
    runs = ", ".join(["pixelcnn-async-2", "pixelcnn-async-2", *(f"none-{i}" for i in range(200))])
    cell = f"```yaml comparison=many\nruns: [{runs}]\nmetric: val/bits_per_dim\nx: [updates, updates]\n```\n"
    experiment = exported.stored.notebook.experiment("pixelcnn-async-2")
    assert experiment is not None
    stored = written(exported.workspace, experiment.source + cell)
    found = gather(
        exported.workspace, RunReader(exported.workspace.tracking_uri()), stored, exported.description
    ).blocks
    many = found[[isinstance(one, CellHead) and one.name == "many" for one in found].index(True) :]
    table = next(one for one in many if isinstance(one, DataTable))
    assert [row[0] for row in table.rows] == ["pixelcnn-async-2", *(f"none-{i}" for i in range(99))]
    assert Remark("100 of the 202 experiments in the cell are shown.") in many
    assert sum(isinstance(one, Chart) for one in many) == 1


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
    witness = EvidenceReader(exported.workspace, reader, "first-steps.md", nb, exported.description)
    blocks = claim_blocks(judge_all(witness)[nb.claims()[0].name])
    head, statement, table, lock, why = blocks[:5]
    assert head == CellHead("claim", "low-enough", ["not resolved"])
    assert statement == Remark("The best val/bits_per_dim of pixelcnn-async-2 is at most 2.5.")
    assert isinstance(table, DataTable)
    assert table.head == ["experiment", "seeds", "best", "verdict"]
    assert [list(row) for row in table.rows] == [["pixelcnn-async-2", "2", "2.097", "not resolved"]]
    assert lock == Remark(
        "Runs of pixelcnn-async-2 do not record which claims the notebook had when these runs started."
    )
    assert why == Remark("pixelcnn-async-2: 2 seeds, but at least 3 are needed")
    document = Document("Page", "page.md", nb.text, "today", blocks)
    assert '<span class="chip not-resolved">not resolved</span>' in as_html(document)
    assert (
        "## claim low-enough (not resolved)\n\nThe best val/bits\\_per\\_dim of pixelcnn-async-2 is at most 2.5."
        in as_markdown(document, "p").text
    )


ANSWER = """
```yaml answer=workers
question: more-workers
experiment: pixelcnn-async-2
```
"""
WRITTEN = """# Lines

Some words.

```yaml claim=sooner
runs: pixelcnn-async-2
against: earlier
figure: updates
metric: val/loss
target: 3.0
at_most: 0.8
```
```yaml claim=later
runs: never
against: earlier
figure: updates
metric: val/loss
target: 3.0
at_most: 0.8
```

<!-- results: sooner -->

updates to val/loss 3: at most 0.8 x that of earlier: **supported**

| experiment | seeds | updates | ratio | 95 % interval | verdict |
| --- | ---: | ---: | ---: | ---: | --- |
| earlier | 3 | 33.6 ± 3.5 | - | - | baseline |
| pixelcnn-async-2 | 3 | 7.5 ± 1.2 | 0.22 | 0.20 – 0.25 | supported |

<!-- end of results: runs 908f6272, table DIGEST -->
"""


def gathered(exported: Exported, text: str, answers: dict[str, ExportedAnswer] | None = None) -> Document:
    stored = written(exported.workspace, text, "lines.md")
    return gather(exported.workspace, NoRuns(""), stored, exported.description, answers)


def with_digest(text: str) -> str:
    table = text.partition("-->")[2].partition("<!-- end")[0].strip()
    return text.replace("DIGEST", hashlib.sha256(table.encode()).hexdigest()[:8])


def test_answers_and_verdicts_come_before_the_text_and_lead_to_their_places(exported: Exported) -> None:
    answer = ExportedAnswer(
        "Will it?", "DDP × 2 takes 0.57x the time.", "answered", [["side", "is", "verdict"]], chart="<svg></svg>"
    )
    document = gathered(exported, with_digest(WRITTEN) + ANSWER, {"workers": answer})
    title, summary, text, *_ = document.blocks
    assert title == UserMarkdown("# Lines\n")
    assert isinstance(summary, Summary)
    assert isinstance(text, UserMarkdown)
    assert text.source.startswith("\nSome words.")
    assert [(one.kind, one.name, list(one.states)) for one in summary.headlines] == [
        ("answer", "workers", ["answered"]), ("claim", "sooner", ["supported"]), ("claim", "later", ["not run"]),
    ]  # fmt: skip
    page = as_html(document)
    assert page.index('href="#answer-workers">DDP × 2 takes 0.57x the time.') < page.index("Some words.")
    assert page.index('id="answer-workers"') < page.index('<div class="wide"><svg></svg></div>')
    assert page.count('id="answer-workers"') == page.count('id="claim-sooner"') == 1
    markdown = as_markdown(document, "p").text
    assert "- **supported**: [sooner](#claim-sooner): updates to val/loss 3" in markdown
    assert '<a id="claim-sooner"></a>\n\n## claim sooner' in markdown


def test_results_whose_runs_are_elsewhere_are_shown_as_such(exported: Exported) -> None:
    """Where the runs are not here, a verdict is what they have written; if that was changed, there is none."""
    document = gathered(exported, with_digest(WRITTEN))
    sooner, later = document.headlines
    assert (sooner.details, sooner.note) == (["pixelcnn-async-2: 0.22 (0.20 – 0.25)"], WRITTEN_BY_RUNS)
    assert later.sentence == "1 claim has no runs here: later"
    changed = gathered(exported, with_digest(WRITTEN).replace("0.22", "0.12"))
    assert [one.sentence for one in changed.headlines] == ["2 claims have no runs here: sooner, later"]


def test_a_notebook_without_results_has_no_summary(exported: Exported) -> None:
    assert gathered(exported, "# Words\n\nOnly.\n").headlines == []


@pytest.mark.parametrize(
    ("table", "details"),
    [
        ([["experiment", "seeds", "updates", "verdict"], ["a", "3", "7.5 ± 1", "supported"]], ["a: 7.5 ± 1"]),
        ([["experiment", "ratio", "95 % interval", "verdict"], ["b", "-", "-", "baseline"],
          ["a", "-", "-", "not resolved"]], ["a: no result"]),
        ([["experiment", "updates", "verdict"], *[[f"{n}", "1", "supported"] for n in range(9)]],
         ["0: 1", "1: 1", "2: 1", "3: 1", "4: 1", "and 4 more"]),
    ],
)  # fmt: skip
def test_a_headline_has_the_figure_that_the_verdict_is_about(table: list[list[str]], details: list[str]) -> None:
    assert claim_headline("c", ["supported"], "s", table).details == details
