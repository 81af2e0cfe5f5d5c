"""The README of the strategies: its example runs, and its table of hooks agrees with the classes."""

import re
from pathlib import Path
from types import FunctionType

import pytest

from scalebook.training import lightning
from scalebook.training.lightning import DDP, AsyncPS, ModelParallel, Peers
from scalebook.training.lightning.package import ParallelStrategy

README = Path(lightning.__file__).with_name("README.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \|", README, re.M)


def overridden(strategy: type[ParallelStrategy]) -> dict[str, str]:
    """Method or property of Lightning's `Strategy` -> our file that overrides it."""
    found = {}
    for name in dir(ParallelStrategy.__base__):
        defines = next((base for base in strategy.__mro__ if name in base.__dict__), object)
        ours = isinstance(defines.__dict__.get(name), FunctionType | property)
        if ours and defines.__module__.startswith("scalebook.") and not name.startswith("__"):
            found[name] = f"`{defines.__module__.rpartition('.')[2]}.py`"
    return found


@pytest.mark.parametrize(("column", "strategy"), [(1, AsyncPS), (1, Peers), (2, DDP), (3, ModelParallel)])
def test_the_table_says_where_each_hook_is(column: int, strategy: type[ParallelStrategy]) -> None:
    table = {row[0]: row[column].strip() for row in ROWS if row[column].strip()}
    assert table == overridden(strategy)


def test_files_that_the_readme_names_exist() -> None:
    folder = Path(lightning.__file__).parent
    named = set(re.findall(r"`((?:[a-z_]+/)?[a-z_]+\.py)`", README))
    assert len(named) > 20
    assert [name for name in named if not list(folder.rglob(Path(name).name))] == []
    assert [name for name in named if "/" in name and not (folder / name).exists()] == []


def test_the_example_runs(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    example = re.search(r"```python\n(.*?)```", README, re.S)
    assert example is not None
    exec(compile(example[1], "README.md", "exec"), {"__name__": "__main__"})  # noqa: S102
    assert "updates=64" in capfd.readouterr().out
