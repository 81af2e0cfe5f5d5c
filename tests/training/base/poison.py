"""Files that say so when they are imported: what lies beside notebooks, by chance or because a stranger made it."""

from pathlib import Path
from typing import Final

MODULES: Final = (
    "yaml", "mlflow", "pandas", "torch", "numpy", "lightning", "streamlit", "optuna", "psutil", "ruamel", "plotly",
    "sqlalchemy", "uvicorn", "flask", "matplotlib", "jsonargparse", "benchmarks", "tests", "scipy", "markdown_it",
)  # fmt: skip
PACKAGES: Final = ("app", "training", "pages")


def poison(folder: Path, *, packages: bool = True) -> None:
    """Fill `folder` with modules that append their name to `it-ran.txt` there."""
    code = f"with open({str(folder / 'it-ran.txt')!r}, 'a') as file: file.write(__name__ + '\\n')\n"
    for name in MODULES:
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
    for name in PACKAGES if packages else ():
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
        (folder / name).mkdir()
        for inside in ("__init__", "__main__", "serve", "main"):
            (folder / name / f"{inside}.py").write_text(code, encoding="utf-8")


def ran(folder: Path) -> list[str]:
    """The modules of `poison` that were imported."""
    told = folder / "it-ran.txt"
    return told.read_text(encoding="utf-8").split() if told.exists() else []
