"""Notebooks made to take long: an answer comes at once, and names the limit."""

import gc
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.experiments.description import Description
from scalebook.training.notebook import store
from scalebook.training.notebook.cells import Note, Notebook
from scalebook.training.notebook.notebook_problems import check

pytestmark = pytest.mark.long

BASE = "```yaml experiment=base\nconfig:\n  model: ConvClassifier\n  data: Digits\n```\n\n"
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{after}: &{after} [{','.join([f'*{before}'] * 9)}]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)
CPU_S = 2.0
MEMORY_KB = 500_000


def cell(body: str, kind: str = "experiment", name: str = "x") -> str:
    return f"```yaml {kind}={name}\n{body}\n```\n\n"


def search(space: str) -> str:
    return BASE + cell(f"experiment: base\nsampler: grid\nspace:\n{space}", "search")


CASES: dict[str, tuple[str, str]] = {
    "50 MB": ("x " * 25_000_000, "has more than 4,000,000 bytes"),
    "20,000 keys": (cell("config:\n" + "".join(f"  k{n}: 1\n" for n in range(20_000))), "more than 10,000 values"),
    "4,500 keys": (
        cell("config:\n" + "".join(f"  k{n}: 1\n" for n in range(4_500))),
        "has 4480 unknown keys in addition to those listed",
    ),
    "10,000 names": (
        BASE + cell("runs: [" + ", ".join(f"n{n}" for n in range(9_990)) + "]", "comparison"),
        "there is no experiment n0 in this notebook",
    ),
    "10,000 times one": (BASE + cell("runs: [" + "base, " * 9_990 + "]", "comparison"), "names base twice"),
    "10^12 points": (
        search("  batch_size: {int: [1, 1000000]}\n  model.width: {int: [1, 1000000]}"),
        "makes a grid of 1,000,000,000,000 points",
    ),
    "10^12 in one": (search("  model.width: {int: [1, 1000000000000]}"), "makes a grid of 1,000,000,000,000 points"),
    "10^12 spaced": (search("  optimizer.lr: {uniform: [0, 1], points: 1000000000000}"), "from 1 to 100000"),
    "1,500 dimensions": (search("".join(f"  k{n}: {{int: [1, 2]}}\n" for n in range(1_500))), "1,500 dimensions"),
    "10,000 cells": ("".join(cell("config: {}", name=f"c{n}") for n in range(5_000)), "has 5,000 cells"),
    "10,000 lines of cells": ("".join(cell("config: {}") for _ in range(10_000)), "has 40,000 lines"),
    "many values": ("".join(cell("config: [" + "a," * 4_000 + "]") for _ in range(20)), "values in its cells"),
    "a long line": (cell("config: {model: " + "x" * 480_000 + "}"), "unknown model 'xxx"),
    "long lines": (cell("config: {model: " + "x" * 600_000 + "}"), "has 600,"),
    "a long key": (cell("config: {? '" + "k" * 400_000 + "' : 1}"), "kkk..."),
    "deep lists": (cell("config: " + "[" * 5_000), "nested deeper than 32 levels"),
    "deep front": ("---\ntitle: " + "[" * 5_000 + "\n---\n", "nested deeper than 32 levels"),
    "a bomb": (cell("config:\n" + "".join(f"  {line}\n" for line in BOMB.splitlines())), "aliases are followed"),
    "a bomb in front": (f"---\n{BOMB}---\n", "aliases are followed"),
    "4,000 digits": (cell("config: {seed_everything: " + "9" * 4_000 + "}"), "whole number of 4,000 digits"),
    "a list of 24,000": ("- a\n" * 24_000, ""),
    "4 MB of text": (("word " * 31 + "\n") * 24_000, ""),
}


@pytest.fixture
def _small_heap() -> None:
    """What other tests have left in this process is not looked through for garbage within the time that is measured."""
    gc.freeze()


@pytest.mark.usefixtures("_small_heap")
@pytest.mark.parametrize(("text", "answer"), CASES.values(), ids=list(CASES))
def test_an_answer_comes_at_once_and_names_the_limit(
    text: str, answer: str, description: Description, tmp_path: Path
) -> None:
    path = tmp_path / "page.md"
    path.write_text(text, encoding="utf-8")
    begun = time.process_time()
    try:
        said = [str(one.problem) for one in check(store.read(path).notebook, description)]
    except ConfigError as error:
        said = [str(error)]
    assert time.process_time() - begun < CPU_S
    assert len(said) <= 51
    assert any(answer in one for one in said) if answer else not said, said[:3]
    assert all(one.isprintable() and len(one) < 2500 for one in said)


@pytest.mark.thorough
def test_no_case_takes_much_memory(tmp_path: Path) -> None:
    """All of them in one process of its own, whose memory only grows."""
    names = []
    for number, (text, _) in enumerate(CASES.values()):
        names.append(str(tmp_path / f"{number}.md"))
        Path(names[-1]).write_text(text, encoding="utf-8")
    code = """
import pathlib, sys
from scalebook.training.notebook import store
from scalebook.training.base.errors import ConfigError
for name in sys.argv[1:]:
    try:
        store.read(pathlib.Path(name))
    except ConfigError as error:
        pass
print(next(line.split()[1] for line in pathlib.Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line))
"""
    done = subprocess.run([sys.executable, "-c", code, *names], check=True, capture_output=True, timeout=100)
    assert int(done.stdout) < MEMORY_KB


def test_a_notebook_beyond_a_limit_is_never_written(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(BASE, encoding="utf-8")
    stored = store.read(path)
    with pytest.raises(ConfigError, match="25,000"):
        store.save(stored, Notebook("", "Page", (Note("- a\n" * 30_000),)))
    assert path.read_text(encoding="utf-8") == BASE
