import re
from pathlib import Path

import pytest

import scalebook
from scalebook.app.help import FENCE, readme_contents, readme_text


def test_it_has_neither_pictures_nor_links_that_lead_nowhere() -> None:
    text = readme_text()
    assert "![" not in text
    assert set(re.findall(r"\]\(([a-z]*)", FENCE.sub("", text))) <= {"https", "http"}
    assert text.count("\n## ") == readme_contents(text).count("](#")


def test_an_installation_without_a_checkout_shows_its_description(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(scalebook, "__file__", str(tmp_path / "scalebook" / "__init__.py"))
    readme_text.cache_clear()
    try:
        assert "## Start" in readme_text()
    finally:
        readme_text.cache_clear()
