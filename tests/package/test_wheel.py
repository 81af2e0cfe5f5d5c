"""Scalebook as a person installs it: its wheel, built, installed into an environment of its own, and started there."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_string
from pathlib import Path

import pytest
import streamlit

from scalebook.app.help.data import GENERATED, generated
from scalebook.training.base.files import yaml
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.description import Description
from tests.app.serving.asking import ask, new_session, opened
from tests.docs.blocks import DOCS, PLACEHOLDER
from tests.e2e.conftest import ROOT, Served, end_supervisor, serve
from tests.package.wheel import own_are_found, own_packages

pytestmark = [pytest.mark.long, pytest.mark.thorough]

PARTS = ("app", "pages", "scalebook", "training")
GENERATORS = ("__init__", "api", "commands", "config", "markdown", "metrics", "tables")
NOT_KEPT = shutil.ignore_patterns(
    ".git", ".venv", ".nox", ".*_cache", ".hypothesis", ".scalebook", "__pycache__", "site"
)
WHERE = "import scalebook.app, scalebook.pages; print(scalebook.__path__[0], scalebook.app.__path__[0], sep=chr(10))"


@dataclass(frozen=True)
class Installed:
    """An environment with our wheel in it; the packages that we need are those of this environment."""

    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")


def pip(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments],
        capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of the repository as code hosts offer it, as Python's zipfile reads it: a link is a text file."""
    copy, archive = tmp_path_factory.mktemp("zip") / "scalebook-main", tmp_path_factory.mktemp("zip") / "main.zip"
    shutil.copytree(ROOT, copy, ignore=NOT_KEPT, symlinks=True)
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(copy.rglob("*")):
            name = str(path.relative_to(copy.parent))
            if path.is_symlink():
                file.writestr(name, os.readlink(path))
            elif path.is_file():
                file.write(path, name)
    return archive


@pytest.fixture(scope="module")
def unpacked(zipped: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(zipped) as file:
        file.extractall(folder)
    return folder / "scalebook-main"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT))
    (wheel,) = folder.glob("scalebook-*.whl")
    found = Installed(folder / "environment")
    venv.create(found.folder, with_pip=False, symlinks=True)
    pip("--python", found.python, "install", "-q", "--no-deps", "--no-index", str(wheel))
    (site,) = found.folder.glob("lib/python3*/site-packages")
    (site / "needed.pth").write_text(f"{Path(streamlit.__file__).parents[1]}\n")
    return found


@pytest.fixture(scope="module")
def served(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    workspace = Workspace(tmp_path_factory.mktemp("notebooks")).create()
    (workspace.root / "notes.md").write_text("# Notes\n", encoding="utf-8")
    found = serve(workspace, command=(str(installed.folder / "bin" / "scalebook"), "ui"), cwd=workspace.root)
    yield found
    found.end()
    end_supervisor(workspace)


def test_it_is_the_installed_one_that_runs(installed: Installed, tmp_path: Path) -> None:
    done = subprocess.run(
        [installed.python, "-c", WHERE], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert all(Path(line).is_relative_to(installed.folder) for line in done.stdout.splitlines())
    assert not list(installed.folder.rglob("config.toml"))


def test_its_pages_have_our_theme_and_tell_nobody(served: Served) -> None:
    cookie = f"{served.access.cookie}={served.access.token}"
    port = int(served.addresses.app.rsplit(":", 1)[1])
    assert ask(port, "/").status == 403
    messages = opened(port, cookie)
    told = new_session(messages)
    assert told.config.gather_usage_stats is False
    assert told.custom_theme.light.primary_color == "#0b6e75"
    assert told.custom_theme.dark.background_color == "#14181b"
    assert "Notes" in "".join(str(one) for one in messages)
    assert not [one for one in messages if one.delta.new_element.WhichOneof("type") == "exception"]


def test_its_mlflow_answers(served: Served) -> None:
    port = int(str(served.addresses.mlflow).rsplit(":", 1)[1])
    found = ask(port, "/version", authorization=f"Bearer {served.access.token}")
    assert (found.status, ask(port, "/version").status) == (200, 403)


def test_packages_called_like_our_folders_stay_a_persons_own(installed: Installed, tmp_path: Path) -> None:
    """`app` is installed, `training` and `pages` lie in the current folder."""
    own_packages(Path(installed.python), tmp_path / "work")
    own_are_found(installed.folder / "bin" / "scalebook", tmp_path / "work")


def test_they_may_be_named_in_a_folder_s_settings(installed: Installed, tmp_path: Path) -> None:
    """`scalebook.toml` names `training.nets`."""
    work, scalebook = tmp_path / "work", installed.folder / "bin" / "scalebook"
    own_packages(Path(installed.python), work)
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(
        [str(scalebook), "describe", "training.nets.Net", "--trust"],
        cwd=work, env=environment, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert '"training.nets.Net"' in done.stdout


def test_the_notebooks_that_ship_are_in_it(installed: Installed, tmp_path: Path) -> None:
    command = [str(installed.folder / "bin" / "scalebook"), "notebook", "examples", str(tmp_path / "mine")]
    subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=True)
    shipped = {path.name: path.read_bytes() for path in (ROOT / "notebooks").glob("*.md")}
    assert {path.name: path.read_bytes() for path in (tmp_path / "mine").iterdir()} == shipped


def test_the_image_of_the_dockerfile_is_built_and_serves(installed: Installed, tmp_path: Path) -> None:
    """Its commands but for the packages of others, which this environment has, in a folder in the place of `/`."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", "").splitlines()
    steps = [command for line in lines if line.startswith("RUN pip") for command in line[4:].split("&&")]
    install, *after = (shlex.split(step.replace(" /notebooks", f" {tmp_path / 'notebooks'}")) for step in steps)
    assert install[:2] + install[-3:] == ["pip", "install", "-c", "constraints.txt", ".[examples]"]
    environment = {**os.environ, "PATH": f"{installed.folder / 'bin'}:{os.environ['PATH']}"}
    for step in after:
        subprocess.run(step, cwd=ROOT, env=environment, capture_output=True, timeout=60, check=True)
    (command,) = [json.loads(line.removeprefix("CMD ")) for line in lines if line.startswith("CMD ")]
    assert command == ["scalebook", "ui", "/notebooks"]
    workspace = Workspace(tmp_path / "notebooks")
    served = serve(workspace, command=(str(installed.folder / "bin" / command[0]), command[1]), cwd=tmp_path)
    try:
        cookie = f"{served.access.cookie}={served.access.token}"
        messages = opened(int(served.addresses.app.rsplit(":", 1)[1]), cookie)
        assert "First steps" in "".join(str(one) for one in messages)
    finally:
        served.end()
        end_supervisor(workspace)


def test_the_documents_that_help_shows_are_in_it(installed: Installed) -> None:
    """Their texts, and what makes the reference; without pictures and the design pages, which are for contributors."""
    (docs,) = installed.folder.glob("lib/python3*/site-packages/scalebook/docs")
    files = [path for path in docs.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    shipped = {path.relative_to(docs): path.read_bytes() for path in files}
    written = {path.relative_to(DOCS): path.read_bytes() for path in DOCS.rglob("*.md") if path.parent.name != "design"}
    made_by = [DOCS / "__init__.py", *(DOCS / "generate" / f"{name}.py" for name in GENERATORS)]
    written |= {path.relative_to(DOCS): path.read_bytes() for path in (*made_by, *DOCS.glob("figures/*.json"))}
    assert shipped == written


def test_help_makes_the_reference_of_what_is_installed(
    installed: Installed, tmp_path: Path, description: Description
) -> None:
    """Of the five pages those that need no workspace."""
    names = sorted(GENERATED.keys() - {"reference/config"})
    program = f"from scalebook.app.help.data import generated\nfor name in {names}: print(generated(name, None).source)"
    done = subprocess.run(
        [installed.python, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(f"{generated(name, lambda: description).source}\n" for name in names)


def test_its_metadata_name_the_authors_and_have_no_placeholder(installed: Installed) -> None:
    (text,) = installed.folder.glob("lib/python3*/site-packages/scalebook-*.dist-info/METADATA")
    metadata = message_from_string(text.read_text(encoding="utf-8"))
    cited = yaml.load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert [metadata["Name"], metadata["Version"]] == [cited["title"].lower(), cited["version"]]
    assert metadata["Author"] == ", ".join(author["name"] for author in cited["authors"])
    assert metadata["License-Expression"] == cited["license"]
    assert sorted(metadata["Keywords"].split(",")) == sorted(cited["keywords"])
    assert "Development Status :: 3 - Alpha" in metadata.get_all("Classifier", [])
    assert PLACEHOLDER.findall(text.read_text(encoding="utf-8")) == []
    urls = [line.partition(", ")[2] for line in metadata.get_all("Project-URL", [])]
    assert [url for url in urls if not url.startswith("https://")] == []


def test_a_zip_archive_makes_the_same_wheel(installed: Installed, zipped: Path, tmp_path: Path) -> None:
    """As `pip install https://.../archive/main.zip` does it."""
    pip("wheel", "-q", "--no-deps", "-w", str(tmp_path), str(zipped))
    assert_same_wheel(installed, tmp_path)


def test_an_sdist_makes_the_same_wheel(installed: Installed, tmp_path: Path) -> None:
    pip("install", "-q", "--target", str(tmp_path / "hatch"), "hatchling>=1.25")
    program = f"from hatchling.build import build_sdist; print(build_sdist({str(tmp_path)!r}))"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "hatch")}
    told = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, check=True)
    pip("wheel", "-q", "--no-deps", "-w", str(tmp_path), str(tmp_path / told.stdout.decode().strip()))
    assert_same_wheel(installed, tmp_path)


def assert_same_wheel(installed: Installed, folder: Path) -> None:
    """The wheel in `folder` has the files, byte by byte, of that which was built from the repository."""
    (ours,), (again,) = installed.folder.parent.glob("scalebook-*.whl"), folder.glob("scalebook-*.whl")
    assert sums(again) == sums(ours)
    modules = {name for name in sums(ours) if name.endswith(".py") and not name.startswith("scalebook/docs/")}
    written = {path.relative_to(ROOT).as_posix() for part in PARTS for path in (ROOT / part).rglob("*.py")}
    assert modules == {name if name.startswith("scalebook/") else f"scalebook/{name}" for name in written}
    assert "scalebook/py.typed" in sums(ours)


def test_an_unpacked_zip_archive_is_a_checkout_that_works(unpacked: Path, tmp_path: Path) -> None:
    """Also installed with `pip install -e`, as `make run` does it."""
    venv.create(tmp_path / "environment", with_pip=False, symlinks=True)
    python = tmp_path / "environment" / "bin" / "python"
    pip("--python", str(python), "install", "-q", "--no-deps", "-e", str(unpacked))
    done = subprocess.run([python, "-c", WHERE], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == [str(unpacked / "scalebook"), str(unpacked / "app")]


@pytest.mark.parametrize("part", [*PARTS, "docs", "notebooks"])
def test_without_one_of_its_parts_nothing_is_built(unpacked: Path, tmp_path: Path, part: str) -> None:
    """A text file in its place is what an archive has of a link."""
    broken = tmp_path / "broken"
    shutil.copytree(unpacked, broken, ignore=shutil.ignore_patterns(part))
    (broken / part).write_text(f"../{part}", encoding="utf-8")
    with pytest.raises(AssertionError, match=rf"broken has no {part}/.*Unpack or clone the whole repository again"):
        pip("wheel", "--no-deps", "-w", str(tmp_path), str(broken))
    assert list(tmp_path.glob("*.whl")) == []


def sums(wheel: Path) -> dict[str, int]:
    """The checksum of each file."""
    with zipfile.ZipFile(wheel) as archive:
        return {one.filename: one.CRC for one in archive.infolist()}
