"""The notebooks that ship, brought into a folder."""

from pathlib import Path

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.cli import notebook
from scalebook.training.notebook import examples


def test_files_that_are_there_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "first-steps.md").write_text("mine")
    assert notebook.main(["examples", str(tmp_path)]) == 0
    assert (tmp_path / "first-steps.md").read_text() == "mine"
    assert (tmp_path / "batch-size.md").read_bytes() == (examples.EXAMPLES / "batch-size.md").read_bytes()
    printed = capsys.readouterr().out
    assert f"kept {tmp_path / 'first-steps.md'}, because it already exists" in printed
    assert f"scalebook ui {tmp_path}" in printed


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(ConfigError, match="is a file"):
        notebook.main(["examples", str(tmp_path / "x")])
