"""Tables of benchmarks, from the files that they have written; a page places one as `<!-- table: NAME -->`."""

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from .markdown import table, words

ROOT: Final = Path(__file__).resolve().parents[2]
FIGURES: Final = ROOT / "docs" / "figures"
RELIABILITY: Final = ROOT / "training" / "planner" / "reliability.json"
MARK: Final = re.compile(r"<!-- table: ([a-z-]+) -->")
TITLE: Final = """# Tables of benchmarks

Each table is made of the file that its benchmark has written. CONTRIBUTING.md says how to run a benchmark again.

"""


def placed(markdown: str) -> str:
    """The text with the table in the place of each mark. KeyError for a name that no table has."""
    return MARK.sub(lambda found: TABLES[found[1]](), markdown)


def page() -> str:
    """All of them."""
    return TITLE + "".join(f"## {name.replace('-', ' ').capitalize()}\n\n{make()}" for name, make in TABLES.items())


def published_servers() -> str:
    """What others have published, and what the planner plays."""
    content = _read(FIGURES / "published-servers.json")
    rows = [
        (
            words(one["name"]), _range(one["published"]), f"{one['under_sync']:.1f}", f"{one['under_async']:.1f}",
            _range(one["widened"]), "yes" if one["met"] else "no", words(one["source"]), words(one["assumed"]),
        )
        for one in content["systems"]
    ]  # fmt: skip
    head = ("system", "published speed-up", "sync", "async", "range", "within", "source", "assumed")
    chen = content["chen"]
    note = (
        "Share of the workers that arrive within 2 s (Chen et al. 2016, 100 workers): "
        f"published {chen['published']:.0%}, predicted {chen['predicted']:.0%} ({chen['source']}).\n\n"
    )
    return _made("python -m tests.published servers", content) + table(head, rows) + note


def published_systems() -> str:
    """Speed-ups of synchronous systems, published and predicted."""
    content = _read(FIGURES / "published-systems.json")
    rows = [
        (
            words(one["name"]), one["part"], f"{one['published']:.1f}", f"{one['predicted']:.1f}",
            f"{one['ratio']:.2f}", "yes" if one["met"] else "no", words(one["source"]), words(one["note"]),
        )
        for one in content["rows"]
    ]  # fmt: skip
    head = ("system", "profile", "published speed-up", "predicted", "ratio", "within 0.8 to 1.25", "source", "assumed")
    return _made("python -m tests.published systems", content) + table(head, rows)


def published_coverage() -> str:
    """How many plans of a system lie in the range that the plans of all others give."""
    content = _read(FIGURES / "published-coverage.json")
    rows = [
        (
            one["kind"], f"{one['systems']}", f"{one['cells']}", f"{one['near']}", f"{one['inside']}",
            f"{one['width']:.1f}", words(one["missed"]),
        )
        for one in content["rows"]
    ]  # fmt: skip
    head = ("plans of", "systems", "plans", "within 25 %", "inside the range", "highest / lowest", "outside")
    return _made("python -m tests.published coverage", content) + table(head, rows)


def published_splits() -> str:
    """Pipelines and tensor parallelism, published and predicted."""
    content = _read(FIGURES / "published-splits.json")
    rows = [
        (
            one["name"], f"{one['published']:.2f}", f"{one['predicted']:.2f}", f"{one['ratio']:.2f}",
            "yes" if one["met"] else f"no: {one['note']}", one["source"],
        )
        for one in content["rows"]
    ]  # fmt: skip
    head = ("system", "published", "predicted", "ratio", "within 0.8 to 1.25", "source")
    return _made("python -m tests.published splits", content) + table(head, rows)


def calibration() -> str:
    """Virtual workers compared with theory."""
    content = _read(FIGURES / "calibration.json")
    rows = [
        (one["part"], words(one["law"]), one["case"], one["theory"], one["engine"], one["ratio"])
        for one in content["rows"]
    ]
    head = ("", "law", "case", "theory", "engine", "engine / theory")
    return _made("python -m benchmarks.calibration", content) + table(head, rows)


def reliability() -> str:
    """The plans that were compared with a run, measured or published."""
    parts = []
    for source in _read(RELIABILITY)["sources"]:
        rows = [
            (one["strategy"], one["place"], words(one["what"]), f"{one['rates']:.2f}", _optional(one["staleness"]))
            for one in source["cells"]
        ]
        head = ("strategy", "place", "what", "updates/s, predicted / measured", "staleness, predicted / measured")
        parts.append(_made(source["command"], source) + table(head, rows))
    return "".join(parts)


def _optional(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _range(ends: list[float]) -> str:
    low, high = (f"{end:.3g}" for end in ends)
    return low if low == high else f"{low} to {high}"


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _made(command: str, content: Mapping[str, Any]) -> str:
    """The command, and machine and date as far as the file has them."""
    facts = [str(content[key]).rstrip(".") for key in ("machine", "date") if content.get(key)]
    return "; ".join([f"`{command}`", *facts]) + ".\n\n"


TABLES: Final[dict[str, Callable[[], str]]] = {
    "published-servers": published_servers,
    "published-systems": published_systems,
    "published-splits": published_splits,
    "published-coverage": published_coverage,
    "calibration": calibration,
    "reliability": reliability,
}
"""By the name of its file."""


if __name__ == "__main__":
    sys.stdout.write(page())
