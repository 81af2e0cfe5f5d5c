"""Where mutants go: the commands and the services behind the pages, in this process."""

import contextlib
import io
import random
import signal
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Final

from scalebook.app.navigation import PLACES
from scalebook.app.runs import data as runs
from scalebook.app.runs.records import CachingReader
from scalebook.app.runs.run_query import RunQuery, groups, select_runs
from scalebook.app.search import data as searches
from scalebook.app.shared import notebooks
from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import yaml
from scalebook.training.base.workspace import Workspace
from scalebook.training.cli.main import main
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.search.definition import read_search
from scalebook.training.experiments.search.point import resolve, summary
from scalebook.training.experiments.search.types import SearchSpec
from scalebook.training.jobs import job_requests
from scalebook.training.search import search_requests
from tests.fuzz import seeds
from tests.fuzz.mutants import PIECES, VALUES, bent, mutant

DEADLINE_S: Final = 5.0
CODES: Final = (0, 2)
"""Exit codes: nothing wrong, and a mistake that was said."""


@dataclass(frozen=True)
class Finding:
    """What a mutant did that it should not: a traceback, a hang, a changed file. `made` is the mutant."""

    target: str
    number: int
    what: str
    made: bytes


class Hang(BaseException):
    """It took longer than `DEADLINE_S`."""


def notebook(workspace: Workspace, rng: random.Random) -> bytes:
    content = mutant(seeds.NOTEBOOK, rng)
    path = workspace.root / "page.md"
    path.write_bytes(content)
    with _unchanged(path):
        _command("notebook", "check", str(path))
        found = notebooks.choices(workspace)
        notebooks.load(found[0])
    return content


def notebook_search(workspace: Workspace, rng: random.Random) -> bytes:
    content = mutant(seeds.NOTEBOOK, rng)
    path = workspace.root / "page.md"
    path.write_bytes(content)
    with _unchanged(path):
        _command("search", "check", str(path))
    return content


def config(workspace: Workspace, rng: random.Random) -> bytes:
    content = mutant(seeds.CONFIG, rng) if rng.random() < 0.4 else bent(seeds.CONFIG, rng)
    path = workspace.root / "fit.yaml"
    path.write_bytes(content)
    with _unchanged(path):
        _command("fit", "-c", str(path), "--print_config")
    return content


def search(workspace: Workspace, rng: random.Random) -> bytes:
    content = mutant(seeds.SEARCH, rng) if rng.random() < 0.3 else bent(seeds.SEARCH, rng)
    path = workspace.root / "search.yaml"
    path.write_bytes(content)
    with _unchanged(path):
        _command("search", "check", "-c", str(path))
    return content


def point(workspace: Workspace, rng: random.Random) -> bytes:
    """Given by hand to a search that goes on."""
    description = describe(workspace)
    spec = _spec(description)
    made: dict[Any, Any] = {one.name: rng.choice(one.ends()) for one in spec.space if rng.random() < 0.7}
    made[rng.choice([*(one.name for one in spec.space), "x"])] = rng.choice(VALUES)
    with contextlib.suppress(ConfigError):
        resolve(spec, made)
    for one in spec.space:
        if one.name in made:
            with contextlib.suppress(ValueError):  # what it says of a value that is none of its own
                one.decode(one.encode(made[one.name]))
                summary(spec, {one.name: made[one.name]})
    return repr(made).encode()


def address(workspace: Workspace, rng: random.Random) -> bytes:
    """What a page is asked for."""
    told = mutant(rng.choice(seeds.ADDRESSES), rng).decode("utf-8", "replace")
    told = rng.choice((told, told, rng.choice(PIECES)))[: rng.choice((10, 300, 5000))]
    reader = _reader(workspace.tracking_uri())
    for place in PLACES:
        place.url(notebook=told, run=told)
    notebooks.pick(workspace, told)
    runs.page_number(told)
    query = RunQuery(told, {"notebook": [told]}, [told], sort=told)
    groups(select_runs(reader.listed(50), query), "notebook", [told])
    reader.runs(notebook=told, cell=told)
    with contextlib.suppress(KeyError):
        reader.run(told)
    with contextlib.suppress(ConfigError):
        job_requests.find(workspace, told)
    with contextlib.suppress(ConfigError):
        search_requests.find(workspace, told)
    searches.find(workspace, told)
    return told.encode("utf-8", "replace")


TARGETS: Final[dict[str, Callable[[Workspace, random.Random], bytes]]] = {
    "notebook": notebook,
    "notebook-search": notebook_search,
    "config": config,
    "search": search,
    "point": point,
    "address": address,
}


def tried(target: str, number: int, seed: int, workspace: Workspace) -> Finding | None:
    """Mutant `number` of `seed` against `target`; the same each time."""
    rng = random.Random(f"{seed} {target} {number}")
    state = rng.getstate()
    try:
        with _deadline():
            TARGETS[target](workspace, rng)
    except Hang as error:
        what = f"hangs: {''.join(traceback.format_tb(error.__traceback__)[-3:])}"
    except Exception:  # noqa: BLE001 - any is a finding
        what = traceback.format_exc()
    else:
        return None
    rng.setstate(state)
    made = b""
    for name in ("page.md", "fit.yaml", "search.yaml"):
        path = workspace.root / name
        if path.exists() and target in ("notebook", "notebook-search", "config", "search"):
            made = path.read_bytes()
    return Finding(target, number, what, made)


def _spec(description: Description, kept: list[SearchSpec] = []) -> SearchSpec:  # noqa: B006 - kept on purpose
    if not kept:
        kept.append(read_search(yaml.load(seeds.SEARCH), None, description))
    return kept[0]


@cache
def _reader(address: str) -> CachingReader:
    return CachingReader(address)


def _command(*argv: str) -> None:
    """A command as somebody gives it; AssertionError where it says more than its mistake."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: Any = main(list(argv))
        except SystemExit as end:
            code = end.code
    assert code in CODES, f"exit code {code}"
    assert "Traceback" not in err.getvalue()
    assert code == 0 or err.getvalue().strip(), "ends with 2 and says nothing"
    said = err.getvalue().removesuffix("\n").split("\n")
    assert all(line.isprintable() for line in said), f"control characters: {said!r:.300}"


@contextlib.contextmanager
def _unchanged(path: Path) -> Iterator[None]:
    before, beside = path.read_bytes(), sorted(one.name for one in path.parent.iterdir())
    yield
    assert path.read_bytes() == before, "the file was changed"
    assert sorted(one.name for one in path.parent.iterdir()) == beside, "a file was made"


@contextlib.contextmanager
def _deadline() -> Iterator[None]:
    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, DEADLINE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
