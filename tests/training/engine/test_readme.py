"""The engine could be published by itself: its README's program runs, and nothing of it needs the rest of Scalebook."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
ENGINE, TESTS = ROOT / "training/engine", ROOT / "tests/training/engine"
LIBRARIES: Final = {
    *sys.stdlib_module_names, "torch", "numpy", "typing_extensions", "zstandard", "cryptography",
    "scalebook.training.engine", "scalebook.training.lazy",
}  # fmt: skip
FOR_TESTS: Final = {
    *LIBRARIES, "pytest", "hypothesis", "psutil", "tests.training.engine", "allpairspy", "tests.examples",
}  # fmt: skip
LOADED: Final = """
import sys
print(sorted({"lightning", "pytorch_lightning", "mlflow", "optuna", "streamlit", "ray"} & set(sys.modules)))
"""


def test_the_program_in_the_readme_runs_without_the_other_libraries() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (ENGINE / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    ended = subprocess.run(
        [sys.executable, "-c", program + LOADED], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert ended.stdout == "0.8926 10\n[]\n", ended.stderr  # 1 - 0.8 ** 10


def test_the_engine_and_its_tests_import_nothing_else_of_scalebook() -> None:
    assert _others(ENGINE, LIBRARIES) == []
    assert _others(TESTS, FOR_TESTS) == []


def _others(folder: Path, allowed: set[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted(folder.rglob("*.py"))
        for name in _imports(path)
        if not any(name == one or name.startswith(f"{one}.") for one in allowed)
    ]


def _imports(path: Path) -> list[str]:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return plain + [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
