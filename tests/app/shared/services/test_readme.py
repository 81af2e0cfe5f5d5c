"""The README on a page."""

import re
from pathlib import Path

import pytest

import scalebook
from scalebook.app.shared.services import readme


def test_it_has_neither_pictures_nor_links_that_lead_nowhere() -> None:
    text = readme.text()
    assert "![" not in text
    assert set(re.findall(r"\]\(([a-z]*)", readme.FENCE.sub("", text))) <= {"https", "http"}
    assert text.count("\n## ") == readme.contents(text).count("](#")


def test_an_installation_without_a_checkout_shows_its_description(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(scalebook, "__file__", str(tmp_path / "scalebook" / "__init__.py"))
    readme.text.cache_clear()
    try:
        assert "## Start" in readme.text()
    finally:
        readme.text.cache_clear()
