"""Who may know whom: the arrows of the design, held against the code's own imports."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BROWSER_MAY_USE = (
    "scalebook.training.workspace",
    "scalebook.training.failures",
    "scalebook.training.files.records",
    "scalebook.training.safe_path",
    "scalebook.training.trust",
    "scalebook.training.config",
    "scalebook.training.jobs",
    "scalebook.training.notebook",
    "scalebook.training.search",
    "scalebook.training.tracking.names",
    "scalebook.training.tracking.reading",
)
HEAVY = ("torch", "lightning", "jsonargparse")


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """The dotted names a file imports, anywhere in it, except for type checking only."""
    for node in _runtime_nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import by full name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        yield from _runtime_nodes(node)


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize("path", sources("training"), ids=str)
def test_training_knows_no_browser(path: Path) -> None:
    assert [name for name in imports(path) if within(name, ("streamlit", "app", "pages"))] == []


@pytest.mark.parametrize("path", sources("app", "pages"), ids=str)
def test_the_browser_side_uses_only_the_light_parts_of_training(path: Path) -> None:
    names = list(imports(path))
    assert [name for name in names if within(name, HEAVY)] == []
    strangers = [name for name in names if within(name, ("training",)) and not within(name, BROWSER_MAY_USE)]
    assert [name for name in strangers if name != "training.__version__"] == []


@pytest.mark.parametrize("path", sources("training/ps"), ids=str)
def test_the_parameter_server_stands_alone(path: Path) -> None:
    own = [
        name for name in imports(path) if within(name, ("training",)) and not within(name, ("scalebook.training.ps",))
    ]
    assert own == []
    assert [name for name in imports(path) if within(name, ("lightning", "mlflow", "optuna"))] == []


@pytest.mark.parametrize("path", sources("pages"), ids=str)
def test_a_page_is_layout_and_words(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 80


def test_only_state_touches_session_state_and_only_resources_caches() -> None:
    for path in sources("app", "pages"):
        text = path.read_text(encoding="utf-8")
        assert "session_state" not in text or path.name == "state.py", path
        assert ("cache_resource" not in text and "cache_data" not in text) or path.name == "resources.py", path


def test_services_know_no_streamlit() -> None:
    for path in sources("app/services"):
        assert [name for name in imports(path) if within(name, ("streamlit",))] == [], path


def test_no_function_is_longer_than_80_lines() -> None:
    long = [
        f"{path}:{node.lineno} {node.name}"
        for path in sources("training", "app", "pages", "benchmarks")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno + 1 > 80
    ]
    assert long == []


def test_the_light_parts_load_no_torch() -> None:
    """Imported for real, in a process of its own: what the browser side loads must not drag torch in."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sources("training", "app")
        if within(".".join(path.relative_to(ROOT).with_suffix("").parts), (*BROWSER_MAY_USE, "app"))
        and path.stem not in {"main", "__main__"}
    ]
    program = (
        "import importlib, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print([name for name in {[*HEAVY, 'mlflow']!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == "[]"
