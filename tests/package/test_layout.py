"""The package `scalebook`: in a checkout its parts lie next to it, where it is installed they lie within it."""

import re
import sys
import tomllib
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from mypy.fscache import FileSystemCache

import scalebook
from scalebook.app import serve
from scalebook.training.cluster import outgoing_files
from tests.check_types import sources_and_options

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("app", "docs", "notebooks", "pages", "training")


def laid_out(folder: Path, within: str) -> ModuleType:
    """The package, imported under another name, with its parts in `within`."""
    home = folder / "scalebook"
    for part in PARTS:
        (folder / within / part).mkdir(parents=True)
        (folder / within / part / "module.py").write_text(f"# {part}")
    home.mkdir(exist_ok=True)
    (home / "__init__.py").write_bytes(Path(scalebook.__file__).read_bytes())
    spec = spec_from_file_location("elsewhere", home / "__init__.py", submodule_search_locations=[str(home)])
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("within", "places"), [("scalebook", ["scalebook"]), ("", ["scalebook", ""])])
def test_parts_are_found_within_the_package_or_next_to_it(tmp_path: Path, within: str, places: Sequence[str]) -> None:
    module = laid_out(tmp_path, within)
    assert list(module.__path__) == [str(tmp_path / place) for place in places]
    assert tmp_path / within == module.SOURCES
    assert {folder.name for folder in module.SUBPACKAGES} == {"app", "pages", "training"}
    assert {folder.parent for folder in module.SUBPACKAGES} == {tmp_path / within}


def test_nodes_with_the_same_sources_agree_whether_they_are_installed_or_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes = {}
    for within in ("scalebook", ""):
        module = laid_out(tmp_path / f"in {within}", within)
        monkeypatch.setattr(outgoing_files, "scalebook", module)
        hashes[within] = outgoing_files.package_hash()
        for name, matters in (("docs/module.py", False), ("training/module.py", True)):
            (module.SOURCES / name).write_text("changed = True")
            assert (outgoing_files.package_hash() != hashes[within]) is matters, name
    assert hashes["scalebook"] == hashes[""]


def test_a_module_has_one_name_and_its_real_path() -> None:
    modules = {name: module for name, module in sys.modules.items() if name.startswith("scalebook.")}
    assert "scalebook.training.base.errors" in modules
    for name, module in modules.items():
        if file := getattr(module, "__file__", None):
            place = ROOT / name.removeprefix("scalebook.").replace(".", "/")
            assert Path(file) in (place.with_suffix(".py"), place / "__init__.py", ROOT / "scalebook" / place.name)
    assert not {"app", "pages", "training"} & sys.modules.keys()


def test_no_part_is_a_link_which_a_zip_archive_would_not_have() -> None:
    places = [ROOT, ROOT / "scalebook", *(ROOT / part for part in PARTS)]
    found = [path for place in places for path in place.glob("*") if path.is_symlink() and path.name != ".venv"]
    assert found == []


def test_the_build_puts_each_part_into_the_package_and_fails_without_it() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"]["sources"] == {part: f"scalebook/{part}" for part in PARTS}
    assert {entry.split("/")[1] for entry in build["include"]} == {*PARTS, "scalebook"}
    required = (ROOT / "hatch_build.py").read_text(encoding="utf-8")
    assert all(f'"{part}/' in required for part in (*PARTS, "scalebook"))
    assert "custom" in build["hooks"]


def test_mypy_gets_each_file_by_the_name_that_imports_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    sources, options = sources_and_options([], FileSystemCache())
    by_module = {source.module: source.path for source in sources}
    assert len(by_module) == len(sources)
    assert by_module["scalebook.training.base.errors"] == "training/base/errors.py"
    assert {name.partition(".")[0] for name in by_module} == {"scalebook", "tests", "benchmarks", "docs", "hatch_build"}
    assert (options.disallow_untyped_defs, options.fast_module_lookup) == (True, True)


def test_the_dockerfile_installs_as_the_readme_says_and_starts_its_main_command() -> None:
    """With a Python that is supported; tests/package/test_wheel.py runs it."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    (version,) = re.findall(r"^FROM python:3\.(\d+)-slim$", text, re.M)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"Programming Language :: Python :: 3.{version}" in project["classifiers"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "-c constraints.txt '.[examples]'" in readme
    assert "-c constraints.txt '.[examples]'" in text
    assert (ROOT / "constraints.txt").is_file()
    assert "scalebook ui notebooks" in readme
    assert 'CMD ["scalebook", "ui", "/notebooks"]' in text
    assert serve.parser().parse_args(["/notebooks"])
