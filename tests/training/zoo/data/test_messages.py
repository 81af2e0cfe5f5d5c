"""The catalogues themselves are read: they are installed with Scalebook, and take a tenth of a second."""

import importlib.util
import struct
from pathlib import Path

import pytest

from scalebook.training.zoo.data import DataError, Messages
from scalebook.training.zoo.data.messages import catalogues, messages


def catalogue(path: Path, said: dict[str, str]) -> Path:
    """A compiled catalogue as gettext's manual has it: magic, tables of lengths and places, texts."""
    said = {"": "Content-Type: text/plain; charset=UTF-8\nPlural-Forms: nplurals=2; plural=(n > 1);\n", **said}
    columns = [sorted(text.encode() for text in said), [said[text].encode() for text in sorted(said)]]
    places, texts, start = b"", b"", 28 + 16 * len(said)
    for column in columns:
        for text in column:
            places += struct.pack("<II", len(text), start + len(texts))
            texts += text + b"\0"
    head = struct.pack("<7I", 0x950412DE, 0, len(said), 28, 28 + 8 * len(said), 0, start)
    path.write_bytes(head + places + texts)
    return path


def test_a_message_is_met_once_with_its_most_frequent_translation(tmp_path: Path) -> None:
    first = catalogue(tmp_path / "a.mo", {"Open": "Ouvert", "menu\x04Close": "Fermer", "%1 cell\0%1 cells": "un\0des"})
    others = [catalogue(tmp_path / f"{name}.mo", {"Open": "Ouvrir", "Empty": " "}) for name in "bc"]
    assert dict(messages([first, *others])) == {"Open": "Ouvrir", "Close": "Fermer", "%1 cell": "un"}


def test_jupyterlab_s_are_there() -> None:
    data = Messages()
    found = dict(data.pairs())
    assert len(found) > 3_000
    assert found["Default Log Level"] == "Niveau de journal par défaut"
    assert not any("\x04" in text or not text.strip() for both in found.items() for text in both)
    assert data.pairs() == data.pairs()


def test_a_missing_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r'Run pip install "scalebook\[examples\]"\.$'):
        catalogues()


def test_a_damaged_catalogue_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.mo").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"a\.mo is damaged .* pip install --force-reinstall"):
        messages([tmp_path / "a.mo"])
