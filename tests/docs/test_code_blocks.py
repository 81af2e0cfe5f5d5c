"""The code blocks of tutorial, how-to and concepts do what they say: the blocks of a page run in one folder, in order.

A block with a title is a file. Commands of ours run in a fork of this process, which has imported what they import.
What cannot run here is checked as far as it goes: its options, its make targets, its modules, its syntax.
"""

import multiprocessing
import re
import shlex
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base.files import yaml
from scalebook.training.base.workspace import SETTINGS, Workspace
from scalebook.training.experiments import catalogue
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.validation import validate
from scalebook.training.pricing.profile import read_profile
from tests.docs.blocks import DOCS, Block, blocks, without_numbers
from tests.e2e.conftest import end_supervisor
from tests.shared_files import Prepared
from tests.training.describing import fork_descriptions, forked

pytestmark = pytest.mark.long

ROOT = DOCS.parent
PAGES = sorted(page for folder in ("tutorial", "how-to", "concepts") for page in (DOCS / folder).glob("*.md"))
KNOWN = {"python", "sh", "yaml", "markdown", "toml", "text"}
OURS = re.compile(r"(?:^|\s)(?:-m )?scalebook ((?:[a-z-]+ )?[^#&|;]*)")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
SECONDS_LONG = {"own-data", "how-many-workers", "own-model", "own-rule"}
"""Pages whose runs are those of other pages, with other classes: a release runs them."""
LONG = [page for page in PAGES if any(block.thorough for block in blocks(page))]


class Reader:
    """Does what a page says, in the current folder."""

    def __init__(self, folder: Path, thorough: bool) -> None:
        self.folder, self.thorough = folder, thorough
        self.printed = ""
        """What the commands of the last block printed; "" where it was not run."""
        self.names: list[str] = []
        """The Python blocks so far, which go on from each other."""

    def follow(self, page: Path) -> None:
        """Every block; an AssertionError names the line where it goes wrong."""
        done = blocks(page)
        for block in done:
            assert block.language in KNOWN, f"{page.name}:{block.line}: {block.language} is no language that is checked"
            try:
                self._block(block)
            except Exception as error:
                raise AssertionError(f"{page.name}:{block.line}: {error}") from error
        if self.names:
            assert in_fork(python, "\n".join(self.names)) == 0, f"{page.name}: its Python does not run"
        self._configs([block for block in done if block.language == "yaml" and not block.not_run])

    def _block(self, block: Block) -> None:
        if block.title:
            (self.folder / block.title).write_text(block.text, encoding="utf-8")
        match block.language:
            case "sh" if block.not_run or (block.thorough and not self.thorough):
                self.printed = ""
                subprocess.run(["bash", "-n"], input=block.text, text=True, check=True, timeout=20)
                check_commands(block.text)
            case "sh":
                self.printed = "".join(map(run, lines(block.text)))
            case "text" if self.printed:
                missing = not_printed(block, self.printed)
                assert missing == [], f"not printed: {missing}\n{self.printed}"
            case "python":
                compile(block.text, f"line {block.line}", "exec")
                if not block.title and not block.not_run:
                    self.names.append(block.text)
            case "toml":
                Workspace(self.folder).create()
                tomllib.loads(block.text)
            case "yaml":
                yaml.load(block.text)

    def _configs(self, found: list[Block]) -> None:
        """Configs, whole or in part, and profiles; when all has run, and the folder is trusted where a page says so."""
        for block in found:
            read = yaml.load(block.text)
            if "gradient" in read:
                read_profile(read)
                continue
            problems = validate(
                Experiment.read(read, catalogue.describe(Workspace(self.folder))), partial=not block.title, typed=True
            )
            assert problems == [], f"line {block.line}: {problems[0]}"


def not_printed(block: Block, printed: str) -> list[str]:
    """Lines of the block that were not; where its numbers vary, each line in some form, as often as it stands there."""
    if not block.varies:
        return [line for line in block.text.splitlines() if line not in printed]
    wanted, there = (Counter(map(without_numbers, text.splitlines())) for text in (block.text, printed))
    return [*(wanted - there).elements()]


def lines(text: str) -> Iterator[str]:
    """The commands of a block; one that goes on over several lines, by a quote or a backslash, is one."""
    pending = ""
    for line in text.replace("\\\n", " ").splitlines():
        pending += line + "\n"
        try:
            words = shlex.split(pending, comments=True)
        except ValueError:
            continue  # a quote is open
        if words:
            yield pending.strip()
        pending = ""
    assert not pending, pending


def run(command: str) -> str:
    """What it printed; an AssertionError where it fails."""
    words = shlex.split(command, comments=True)
    if words[0] == "scalebook":
        done = forked(*words[1:])
    else:
        done = subprocess.run(["bash", "-euc", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout + done.stderr


def check_commands(text: str) -> None:
    """Of commands that are not run: ours have these options, make has these targets, and extras and modules exist."""
    text = text.replace("\\\n", " ")
    for line in text.splitlines():
        for found in OURS.finditer(line.partition("#")[0]):
            check_ours(shlex.split(found[1]))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert [one for one in re.findall(r"\bmake ([a-z-]+)", text) if f"\n{one}:" not in makefile] == []
    assert set(re.findall(r"scalebook\[(\w+)\]", text)) <= EXTRAS.keys()
    for module in re.findall(r"python -m ((?:benchmarks|tests)[\w.]*)", text):
        assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file(), module


def check_ours(words: list[str]) -> None:
    """Each option is in the help of its command; keys of a config are not."""
    commands = [word for word in words[:2] if re.fullmatch("[a-z-]+", word) and not word.startswith("-")]
    help_ = next(found for n in (2, 1) if (found := help_of(*commands[:n])))
    for option in words:
        if option.startswith("--") and "." not in option:
            assert option in help_, f"scalebook {' '.join(commands)} has no {option}"


@cache
def help_of(*commands: str) -> str:
    """What they say of themselves; "" where they are no commands."""
    try:
        done = forked(*commands, "--help")
    except EOFError:  # its parser has ended the process
        words = [sys.executable, "-m", "scalebook", *commands, "--help"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    return "" if done.returncode else done.stdout


def python(program: str) -> None:
    """Blocks of a page that go on from each other."""
    exec(compile(program, "page", "exec"), {"__name__": "page"})  # noqa: S102


def in_fork(function: Callable[[Any], None], argument: Any, timeout_s: float = 100.0) -> int | None:
    process = multiprocessing.get_context("fork").Process(target=function, args=(argument,))
    process.start()
    process.join(timeout_s)
    if process.is_alive():
        process.kill()
    return process.exitcode


@pytest.fixture
def reader(tmp_path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], Reader]]:
    """Who has an empty folder, and nothing of this repository in the way."""
    folder = tmp_path / "reader"
    folder.mkdir()
    prepared.into(Workspace(folder))
    monkeypatch.chdir(folder)
    fork_descriptions(monkeypatch)
    yield lambda thorough: Reader(folder, thorough)
    for path in (folder, *folder.iterdir()):
        if (path / ".scalebook").is_dir():
            end_supervisor(Workspace(path))


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(page, id=page.stem, marks=[pytest.mark.thorough] if page.stem in SECONDS_LONG else [])
        for page in PAGES
    ],
)
def test_a_page_does_what_it_says(document: Path, reader: Callable[[bool], Reader]) -> None:
    reader(False).follow(document)


@pytest.mark.parametrize("name", sorted(SECONDS_LONG))
def test_of_a_long_page_a_commit_checks_what_is_written(name: str) -> None:
    """Its commands, options and files; not what they print."""
    (page,) = [page for page in PAGES if page.stem == name]
    for block in blocks(page):
        match block.language:
            case "sh":
                subprocess.run(["bash", "-n"], input=block.text, text=True, check=True, timeout=20)
                check_commands(block.text)
            case "python":
                compile(block.text, f"{page.name}:{block.line}", "exec")
            case "yaml":
                yaml.load(block.text)


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("document", LONG, ids=[page.stem for page in LONG])
def test_what_takes_long_does_too(document: Path, reader: Callable[[bool], Reader]) -> None:
    reader(True).follow(document)


def test_what_is_wrong_is_found(reader: Callable[[bool], Reader], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for text, said in {
        "```sh\nscalebook fit -c missing.yaml\n```": "missing.yaml",
        '```sh {.not-run reason="long"}\nscalebook plan --prophet\n```': "has no --prophet",
        '```sh {.not-run reason="long"}\nmake tea\n```': "tea",
        "```yaml\ntrainer: {max_epocs: 3}\n```": "max_epocs",
        "```yaml\ngradient: fast\nbatch_size: 2\n```": "profile.push",
        "```python\nassert 1 == 2\n```": "does not run",
        "```sh\necho one\n```\n\n```text\ntwo\n```": "not printed",
        "```sh\necho one 1; echo one 2\n```\n\n```text {.varies}\none 3\none 4\none 5\n```": "not printed: ['one #']",
        "```sh {.not-run}\nls\n```": "and its reason",
        "```ruby\nputs 1\n```": "no language",
    }.items():
        page.write_text(f"# Page\n\n{text}\n", encoding="utf-8")
        with pytest.raises((AssertionError, ValueError), match=re.escape(said)):
            reader(False).follow(page)


def test_where_numbers_vary_words_are_printed_again(reader: Callable[[bool], Reader], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    run = "echo 'the best of 8:'; echo ' 7  0.1987 rate 3.9e-02'"
    page.write_text(
        f"```sh\n{run}\n```\n\n```text {{.varies}}\nthe best of 8:\n  3 0.2 rate 1\n```\n", encoding="utf-8"
    )
    reader(False).follow(page)


def test_settings_in_the_pages_are_settings() -> None:
    """`toml` blocks are read by who reads scalebook.toml."""
    found = [block for page in PAGES for block in blocks(page) if block.language == "toml"]
    assert found, SETTINGS
