"""The HTML file: what stands in it, and that a browser fetches and runs nothing for it."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typing_extensions import override

from scalebook.training.notebook.export.document import Block, DataTable, Document, Remark, UserMarkdown
from scalebook.training.notebook.export.gathering import gather
from scalebook.training.notebook.export.html_file import as_html
from scalebook.training.tracking.run_reader import RunReader
from tests.training.notebook.export.conftest import Exported, written

VOID = ("meta", "img", "br", "hr", "rect", "line", "path", "circle")


@dataclass
class Page(HTMLParser):
    """What a parser finds: every element with its attributes, the text, and what was not closed in order."""

    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    text: str = ""
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    @override
    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))

    @override
    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    @override
    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(text: str) -> Page:
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    return page


def fetched(page: Page) -> list[str]:
    """Whatever a browser would load by itself, run, or send."""
    found = [
        f"{tag}" for tag, _ in page.elements if tag in ("script", "link", "iframe", "object", "embed", "form", "base")
    ]
    for tag, given in page.elements:
        found += [f"{tag} {key}" for key in given if key.startswith("on") or key in ("srcset", "srcdoc", "action")]
        if not given.get("src", "data:image/").startswith("data:image/"):
            found.append(f"{tag} {given['src']}")
        leads = next((given[key] for key in ("href", "xlink:href") if key in given), "")
        if tag != "a" and leads and not leads.startswith(("#", "data:image/png")):
            found.append(f"{tag} {leads}")
        if tag == "a" and re.match(r"[\x00-\x20]*(javascript|vbscript|data|file)", leads, re.IGNORECASE):
            found.append(leads)
    return found


@pytest.fixture(scope="module")
def text(exported: Exported) -> str:
    return as_html(exported.document)


def rows(text: str, cell: str) -> list[list[str]]:
    """The rows of the tables of one cell."""
    section = next(one for one in text.split('<section class="cell">') if f"</span> {cell} " in one)
    return [re.findall(r"<td[^>]*>(.*?)</td>", one) for one in re.findall(r"<tr.*?</tr>", section)]


def test_nothing_is_fetched_and_no_script_runs(text: str) -> None:
    page = parsed(text)
    assert fetched(page) == []
    assert "url(" not in text.replace("url(#", "")
    assert "@import" not in text
    policy = next(given["content"] for tag, given in page.elements if given.get("http-equiv"))
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:;")
    assert [given["href"] for tag, given in page.elements if tag == "a"] == ["https://example.org/paper"]


def test_an_experiment_has_its_results_by_seed_its_curve_and_its_config(text: str) -> None:
    found = rows(text, "pixelcnn-async-2")[1:]
    assert [row[:4] for row in found] == [["1", "finished", "2.047", "2.047"], ["2", "finished", "2.147", "2.147"]]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", row[-1]) for row in found)
    assert all(re.fullmatch(r"\d\d s", row[-2]) for row in found)
    section = next(one for one in text.split('<section class="cell">') if "</span> pixelcnn-async-2 " in one)
    assert '<span class="chip finished">finished</span>' in section
    assert 'aria-label="val/bits_per_dim against updates"' in section
    assert section.count("stroke-opacity: 0.4") == 2  # the seeds, behind their mean
    assert section.count("fill-opacity: 0.14") == 1
    assert "<summary>Config</summary><pre><code>repeats: 2   # two seeds\n" in section
    for name, value in (
        ("model", "PixelCNN"),
        ("strategy", "parameter server, async"),
        ("global batch", "64"),
        ("seeds", "2"),
    ):
        assert f"<dt>{name}</dt><dd>{value}</dd>" in section


def test_a_failure_a_stale_result_and_a_cell_that_never_ran_say_so(text: str) -> None:
    assert '</span> earlier <span class="chip failed">failed</span><span class="chip stale">stale</span></h2>' in text
    assert rows(text, "earlier")[1][1] == "failed, stale"
    assert "Seed 1: worker lost. No such file: ~/data/x and ~/y." in text
    assert '</span> never <span class="chip">not run</span></h2>' in text


def test_a_comparison_has_table_charts_and_differences(text: str) -> None:
    found = rows(text, "both")
    assert found[1][:5] == ["pixelcnn-async-2", "parameter server, async", "2 x 32", "0.001", "2.10 ± 0.64"]
    assert "earlier: 0 of 1 runs, missing (the results are from an earlier config)" in text
    assert "target 2.5" in text
    for axis in ("updates", "seconds"):
        assert f'aria-label="val/bits_per_dim against {axis}"' in text
    assert ["data.batch_size", "32", "16"] in found


def test_a_search_has_plan_best_trials_and_map(text: str) -> None:
    section = next(one for one in text.split('<section class="cell">') if "</span> batch-size " in one)
    for name, value in (("objective", "val/loss (lower is better)"), ("trials", "1,000"), ("pruner", "median")):
        assert f"<dt>{name}</dt><dd>{value}</dd>" in section
    found = rows(text, "batch-size")
    assert ["batch_size", "16 ... 1024"] in found
    best = [row for row in found if len(row) == 7]
    assert len(best) == 10
    assert [float(row[5]) for row in best] == sorted(float(row[5]) for row in best)
    assert f"Best: val/loss {best[0][5]} at batch {best[0][2]}" in section
    assert 'aria-label="val/loss over batch_size and learning_rate"' in section
    assert section.count("stroke: #ffffff; stroke-width: 0.8") > 50  # a mark a finished trial


def test_environment_and_commands_stand_at_the_end(text: str) -> None:
    end = text[text.index("<h2>Environment</h2>") :]
    pairs = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", end))
    assert pairs == {
        "Scalebook": "0.1.0", "Python": "3.12.1", "PyTorch": "2.9.0", "Lightning": "2.6.4",
        "machine": "8 cores, 2 x NVIDIA H100",
    }  # fmt: skip
    assert "scalebook notebook run first-steps.md\nscalebook search run first-steps.md --cell batch-size" in end
    assert "This was recorded with 3 runs" in end


def test_no_folder_of_the_machine_is_named(exported: Exported, text: str) -> None:
    for path in (Path.home(), exported.workspace.root, "/home/alice"):
        assert str(path) not in text


def test_it_is_for_screen_and_paper_light_and_dark(text: str) -> None:
    assert "@media screen and (prefers-color-scheme: dark)" in text
    assert "@media print" in text
    assert "details::details-content { content-visibility: visible" in text


def test_a_notebook_from_a_stranger_gives_text_and_nothing_else(exported: Exported) -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'</style></textarea>"
    source = (
        f"---\ntitle: '<script>alert(2)</script>'\n---\n{evil}\n\n<iframe src=https://evil.example></iframe>\n\n"
        "[a](javascript:alert(1)) [b](&#106;avascript:alert(1)) [c](data:text/html,x) [d](  JaVaScRiPt:alert(1))\n"
        "[e]: java\nscript:x\n\n<javascript:alert(1)>\n\n![p](https://evil.example/p.png) ![q](file:///etc/passwd)\n\n"
        '[f](https://example.org "x\\" onclick=alert(1)")\n\n'
        "```yaml experiment=one\nconfig:\n  model: '</code></pre><script>alert(3)</script>'\n"
        "  data: {class_path: '<b>', init_args: {root: '\"><img src=https://evil.example>'}}\n```\n\n"
        "```yaml experiment=broken\nconfig: [<script>\n```\n\n"
        "```yaml comparison=c\nruns: [one, '<script>']\nmetric: '\"><script>alert(4)</script>'\n```\n"
    )
    stored = written(exported.workspace, source, "stranger.md")
    reader = RunReader(exported.workspace.tracking_uri())
    text = as_html(gather(exported.workspace, reader, stored, exported.description))
    page = parsed(text)
    assert fetched(page) == []
    assert "<script" not in text
    assert "alert(3)" in page.text
    links = [given["href"] for tag, given in page.elements if tag == "a" and "href" in given]
    assert links == ["https://evil.example/p.png", "https://example.org"]
    assert "picture: p" in page.text


def test_a_title_is_written_where_no_note_begins_with_one() -> None:
    blocks: list[Block] = [Remark("a < b", trouble=True), DataTable(["<h>"], [["&"]], best=0)]
    text = as_html(Document("A & B", "a.md", "text", "today", blocks))
    assert "<h1>A &amp; B</h1>" in text
    assert "<title>A &amp; B</title>" in text
    assert '<p class="remark trouble">a &lt; b</p>' in text
    assert '<th>&lt;h&gt;</th></tr></thead><tbody><tr class="best"><td>&amp;</td></tr>' in text
    headed = as_html(Document("A", "a.md", "text", "today", [UserMarkdown("# Mine\n")]))
    assert re.findall("<h1>.*?</h1>", headed) == ["<h1>Mine</h1>"]
