"""The notebooks that ship, as exported pages of the documentation, and the page that lists them.

Nothing is trained here. A notebook whose runs were exported by `make screenshots` has its page in docs/gallery; of any
other the page is made from the notebook's text, which has the results that its runs have written into it.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from scalebook.training.base import Workspace
from scalebook.training.experiments import Description
from scalebook.training.notebook import Note, Notebook, store
from scalebook.training.notebook.export import as_html, gather
from scalebook.training.notebook.export.document import Headline
from scalebook.training.notebook.export.markdown_file import plain, summary_lines
from scalebook.training.tracking import NoRuns

from .config import described

ROOT: Final = Path(__file__).resolve().parents[2]
NOTEBOOKS: Final = ROOT / "notebooks"
RECORDED: Final = ROOT / "docs" / "gallery"
PAGE: Final = "gallery/index.md"
PICTURES: Final = {"batch-size": "../figures/classifier-map.png"}
MOST: Final = 3
"""Headlines of one notebook on the page that lists them."""
NOT_RECORDED: Final = (
    "No runs are recorded for this page, so its cells are not run. Figures in its text were typed by its authors."
)
HEAD: Final = """# Gallery

The ten notebooks that ship with Scalebook, exported as web pages. Copy them with `scalebook notebook examples FOLDER`,
open them with `scalebook ui FOLDER`, and run them again.

"""


class ShownNotebook(NamedTuple):
    """One notebook of the gallery. `html` is "" if its exported page is in docs/gallery."""

    name: str
    title: str
    about: str
    headlines: Sequence[Headline]
    html: str

    @property
    def is_recorded(self) -> bool:
        """Whether runs have left results: in its exported page, or in its text."""
        return not self.html or any(headline.note for headline in self.headlines)


@cache
def shown() -> list[ShownNotebook]:
    """All of them, by name."""
    description = described()
    return [_shown(path, description) for path in sorted(NOTEBOOKS.glob("*.md"))]


def pages() -> dict[str, str]:
    """The page of each notebook that has none in docs/gallery, and the page that lists all, by address."""
    made = {f"gallery/{one.name}.html": one.html for one in shown() if one.html}
    return {**made, PAGE: HEAD + "\n".join(map(_entry, shown()))}


def of_text(recorded: Path) -> str:
    """The notebook's own text in an exported page."""
    return unescape(recorded.read_text(encoding="utf-8").rpartition("<pre><code>")[2].partition("</code></pre>")[0])


def _shown(path: Path, description: Description) -> ShownNotebook:
    stored = store.read(path)
    with TemporaryDirectory() as folder:  # without runs
        document = gather(Workspace(Path(folder)), NoRuns(""), stored, description)
    html = "" if (RECORDED / f"{path.stem}.html").exists() else as_html(document)
    return ShownNotebook(path.stem, document.title, _first_paragraph(stored.notebook), document.headlines, html)


def _first_paragraph(nb: Notebook) -> str:
    text = next((cell.source for cell in nb.cells if isinstance(cell, Note)), "")
    paragraphs = [part.strip() for part in text.split("\n\n")]
    return next((part for part in paragraphs if part and part[0] not in "#-|<`"), "")


def _entry(one: ShownNotebook) -> str:
    parts = [f"## [{plain(one.title)}]({one.name}.html)", one.about]
    if picture := PICTURES.get(one.name):
        parts.append(f"[![{plain(one.title)}]({picture})]({one.name}.html)")
    results = [replace(headline, note="") for headline in one.headlines if headline.note]
    if results:
        parts.append(summary_lines(results[:MOST], linked=False))
        if len(results) > MOST:
            parts.append(f"[{len(results) - MOST} more results]({one.name}.html)")
    if not one.is_recorded:
        parts.append(NOT_RECORDED)
    return "\n\n".join(parts) + "\n"
