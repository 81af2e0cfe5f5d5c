"""The picture of the packages and their imports in docs/architecture.md.

    python -m docs.generate.rooms docs/figures/rooms.svg

Reads only the sources. The picture has a box for each package, and an arrow for each import that does not follow from
others: `cli` imports `jobs`, `jobs` imports `base`, so there is no arrow from `cli` to `base`.
"""

import ast
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("training", "app", "pages")
BROWSER = ("app", "pages")
COLUMNS = {
    "pages": 2.2, "app": 2.2, "cli": 5.4, "planner": 7.0, "notebook": 3.6, "supervisor": 5.6, "cluster": 2.0,
    "search": 4.6, "lightning": 7.2, "jobs": 3.6, "experiments": 3.6, "zoo": 7.4, "tracking": 2.4, "base": 2.4,
    "engine": 6.8, "callbacks": 7.6,
}  # fmt: skip
"""Where a room's box lies across the picture, from 0 to 9, so that no arrow crosses one; any other is spread evenly."""


def room(path: Path) -> str:
    """The folder of a file, two levels deep: `training/engine`, `app/search`, `pages`."""
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


def large_room(name: str) -> str:
    """`engine` of `training/engine`; `app` and `pages` are one room each; "" for what lies in no room."""
    house, _, inner = name.partition("/")
    return house if house in BROWSER else inner


def rooms() -> tuple[dict[str, int], dict[str, set[str]]]:
    """The lines of each room, and the rooms that it imports."""
    lines: Counter[str] = Counter()
    known: dict[str, set[str]] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text, own = path.read_text(encoding="utf-8"), large_room(room(path))
            if own:
                lines[own] += len(text.splitlines())
                known.setdefault(own, set()).update(map(large_room, imported_rooms(ast.parse(text))))
    return dict(lines), {own: others - {own, ""} for own, others in known.items()}


def reduced(known: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """The arrows that do not follow from others (the transitive reduction; `known` has no circles), sorted."""

    def below(name: str) -> set[str]:
        return known[name].union(*(below(other) for other in known[name]))

    return sorted((a, b) for a in known for b in known[a] if all(b not in below(c) for c in known[a] - {b}))


def heights(known: Mapping[str, set[str]]) -> dict[str, int]:
    """0 for a room that imports none; else one more than the highest that it imports."""

    def height(name: str) -> int:
        return max((height(other) + 1 for other in known[name]), default=0)

    return {name: height(name) for name in known}


def draw(file: Path) -> None:
    """An SVG: rooms from the ground up. Its description lists the arrows, for a test that holds it to the sources."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

    lines, known = rooms()
    floors = heights(known)
    top = max(floors.values())
    figure = Figure(figsize=(9, 1.05 * (top + 1)))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, 9)
    axes.set_ylim(-0.6, top + 0.6)
    axes.axis("off")
    places = {}
    for floor in range(top + 1):
        names = sorted(name for name in floors if floors[name] == floor)
        for number, name in enumerate(names):
            x = COLUMNS.get(name, 9 * (number + 1) / (len(names) + 1))
            places[name] = (x, floor)
            browser = name in BROWSER
            axes.add_patch(
                FancyBboxPatch(
                    (x - 0.75, floor - 0.22), 1.5, 0.44, boxstyle="round,pad=0.02,rounding_size=0.1",
                    facecolor="#fde8d7" if browser else "#dbe9f6", edgecolor="#555555", linewidth=0.8, zorder=2,
                )
            )  # fmt: skip
            axes.text(x, floor + 0.06, f"{name}/", ha="center", va="center", fontsize=10, zorder=3)
            axes.text(x, floor - 0.12, f"{lines[name]:,} lines", ha="center", va="center", fontsize=7, zorder=3)
    arrows = reduced(known)
    for source, target in arrows:
        (x, y), (u, v) = places[source], places[target]
        axes.add_patch(
            FancyArrowPatch(
                (x, y - 0.24), (u, v + 0.24),
                arrowstyle="-|>", mutation_scale=9, color="#888888", linewidth=0.9, zorder=1,
            )
        )  # fmt: skip
    FigureCanvasSVG(figure)
    description = "; ".join(f"{source} imports {target}" for source, target in arrows)
    figure.savefig(file, metadata={"Date": None, "Title": "The rooms of Scalebook", "Description": description})


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
