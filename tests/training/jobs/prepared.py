"""A runner whose module has something to prepare: what it notes lies beside the jobs' folders."""

from pathlib import Path

_prepared: list[Path | None] = []


def run(folder: Path) -> int:
    (folder / "forked-from").write_text(repr(_prepared), encoding="utf-8")
    return 0


def prepare(folder: Path | None) -> None:
    _prepared.append(folder)
    assert folder is not None
    with open(folder.parent / "prepared", "a", encoding="utf-8") as file:
        file.write(f"{folder.name}\n")
    raise OSError("what is prepared fails")
