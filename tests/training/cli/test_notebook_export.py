"""`scalebook notebook export`: where the file goes, and which file it never replaces."""

from pathlib import Path

import pytest

from scalebook.training.base.workspace import Workspace
from scalebook.training.cli.main import main
from tests.app.recorded import record

TEXT = """# A page

```yaml experiment=one
config:
  model: {class_path: scalebook.training.zoo.models.PixelCNN}
  data: {class_path: scalebook.training.zoo.data.Digits}
```
"""


@pytest.fixture
def notebook_file(workspace: Workspace) -> Path:
    """A notebook whose experiment has a result."""
    record(workspace, cell="one", notebook="page.md")
    path = workspace.root / "page.md"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_html_goes_beside_the_notebook_and_is_replaced(notebook_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["notebook", "export", str(notebook_file)]) == 0
    target = notebook_file.with_suffix(".html")
    assert capsys.readouterr().out == f"{target}\n"
    assert "2.047" in target.read_text(encoding="utf-8")
    assert target.stat().st_mode & 0o777 == notebook_file.parent.stat().st_mode & 0o644
    notebook_file.write_text(TEXT.replace("A page", "Another"), encoding="utf-8")
    assert main(["notebook", "export", str(notebook_file)]) == 0
    assert "<h1>Another</h1>" in target.read_text(encoding="utf-8")


def test_markdown_has_its_pictures_beside_it(notebook_file: Path) -> None:
    target = notebook_file.with_name("export.md")
    assert main(["notebook", "export", str(notebook_file), "-o", str(target)]) == 0
    assert "](export-pictures/chart-1.svg)" in target.read_text(encoding="utf-8")
    picture = notebook_file.with_name("export-pictures") / "chart-1.svg"
    assert picture.read_text(encoding="utf-8").startswith("<svg ")
    assert main(["notebook", "export", str(notebook_file), "--format", "markdown"]) == 0
    assert (notebook_file.parent / "page-export" / "page.md").is_file()
    assert (notebook_file.parent / "page-export" / "page-pictures" / "chart-1.svg").is_file()
    assert notebook_file.read_text(encoding="utf-8") == TEXT


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("page.md", "is not an export"),
        ("mine.html", "is not an export"),
        (".", "a folder"),
        ("none/x.html", "does not exist"),
    ],
)
def test_nothing_else_is_replaced(notebook_file: Path, name: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    mine = notebook_file.with_name("mine.html")
    mine.write_text("mine", encoding="utf-8")
    assert main(["notebook", "export", str(notebook_file), "-o", str(notebook_file.parent / name)]) == 2
    assert why in capsys.readouterr().err
    assert (notebook_file.read_text(encoding="utf-8"), mine.read_text(encoding="utf-8")) == (TEXT, "mine")


def test_a_notebook_without_a_store_is_exported_too(tmp_path: Path, workspace: Workspace) -> None:
    notebook_file = workspace.root / "words.md"
    notebook_file.write_text("# Only words\n", encoding="utf-8")
    assert main(["notebook", "export", str(notebook_file), "--format", "html", "-o", str(tmp_path / "out.txt")]) == 0
    assert "No run is recorded." in (tmp_path / "out.txt").read_text(encoding="utf-8")
