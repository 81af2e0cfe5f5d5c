"""The shape of the code, counted: files, their length, the longest functions, and the arrows between the folders.

    python -m benchmarks.shape

Reads only the sources. The arrows are those the architecture test holds (tests/test_architecture.py).
"""

import ast
from collections import Counter
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1] / "scalebook"
FOLDERS = ("training", "app", "pages")


def main() -> None:
    lengths: dict[Path, int] = {}
    functions: list[tuple[int, str]] = []
    arrows: Counter[tuple[str, str]] = Counter()
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text)
            lengths[path] = len(text.splitlines())
            functions += function_lengths(tree, path)
            arrows.update((room(path), target) for target in imported_rooms(tree) if target != room(path))
    report(lengths, functions, arrows)


def report(lengths: dict[Path, int], functions: list[tuple[int, str]], arrows: Counter[tuple[str, str]]) -> None:
    real = {path: count for path, count in lengths.items() if path.name != "__init__.py"}
    sizes = [count for count, _ in functions]
    print(f"files      {len(real)}, median {median(real.values()):.0f} lines, longest:")
    for path, count in sorted(real.items(), key=lambda item: -item[1])[:5]:
        print(f"  {count:5d}  {path.relative_to(ROOT)}")
    print(f"functions  {len(sizes)}, median {median(sizes):.0f} lines, longest:")
    for count, where in sorted(functions, reverse=True)[:5]:
        print(f"  {count:5d}  {where}")
    print("arrows     (imports from -> to)")
    for (source, target), count in sorted(arrows.items()):
        print(f"  {count:5d}  {source} -> {target}")


def function_lengths(tree: ast.AST, path: Path) -> list[tuple[int, str]]:
    return [
        ((node.end_lineno or node.lineno) - node.lineno + 1, f"{path.relative_to(ROOT)}:{node.name}")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def room(path: Path) -> str:
    """`training/engine`, `app/search`, `pages`: the folder a file lies in, two levels deep."""
    return "/".join(path.relative_to(ROOT).parent.parts[:2])


def imported_rooms(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    ours = [name.removeprefix("scalebook.") for name in names if name.startswith("scalebook.")]
    return {name_room(name) for name in ours if name.split(".")[0] in FOLDERS}


def name_room(name: str) -> str:
    parts = name.split(".")
    inside = len(parts) > 1 and (ROOT / parts[0] / parts[1]).is_dir()
    return "/".join(parts[:2]) if inside else parts[0]


if __name__ == "__main__":
    main()
