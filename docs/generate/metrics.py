"""`reference/metrics.md`: every metric, parameter, tag and artifact of a run, from the docstrings of their names."""

import ast
import inspect
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

from scalebook.training.tracking import names

from .markdown import table, words

TITLE: Final = """# Metrics, parameters, tags and artifacts

What a run has in MLflow. The step of every metric is the number of updates. With each point `samples`,
`seconds` and `bytes` are logged at the same step, so a curve can be drawn against any of them. Other metrics that a
model logs keep their names. A metric of `perf/` or `ps/` that is 0 throughout is not recorded, except
`ps/staleness_mean`. MLflow's own system metrics begin with `system/`.

"""


class Name(NamedTuple):
    """One constant of names.py."""

    part: str
    """`metrics`, `tags`, `artifacts`: what the separator above it says."""
    heading: str
    name: str
    text: str
    meaning: str
    """Its docstring, on one line."""


def documented() -> list[Name]:
    """The constants that are texts, in their order."""
    source = inspect.getsource(names)
    above = _comments(source)
    body = ast.parse(source).body
    found: list[Name] = []
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        value = getattr(names, node.target.id)
        if isinstance(value, str):
            part, heading = above[node.lineno]
            meaning = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                meaning = " ".join(str(after.value.value).split())
            found.append(Name(part, heading, node.target.id, value, meaning))
    return found


def _comments(source: str) -> dict[int, tuple[str, str]]:
    """By line: the separator and the comment of its own above it."""
    part = heading = ""
    by_line: dict[int, tuple[str, str]] = {}
    for number, line in enumerate(source.splitlines(), 1):
        if line.startswith("# --- "):
            part, heading = line.strip("#- ").partition(":")[0].partition(",")[0], ""
        elif line.startswith("# "):
            heading = line.removeprefix("# ")
        by_line[number] = part, heading
    return by_line


def metrics() -> list[Name]:
    """Those that stand for one metric each."""
    return [one for one in documented() if one.part == "metrics" and not one.text.endswith("/")]


def page() -> str:
    """The page."""
    return TITLE + "".join(_sections())


def _sections() -> Iterator[str]:
    known = metrics()
    yield "## Metrics\n\n"
    for heading in dict.fromkeys(one.heading for one in known):
        rows = [(f"`{one.text}`", *_split(one.meaning)) for one in known if one.heading == heading]
        yield f"### {heading}\n\n{table(('metric', 'meaning', 'unit'), rows)}"
    made = [
        (f"`{text}`", words(" ".join((inspect.getdoc(make) or "").split())))
        for text, make in (
            (names.best("METRIC"), names.best),
            (names.final("METRIC"), names.final),
            (names.per_worker("METRIC", 0).replace("0", "N"), names.per_worker),
        )
    ]
    yield f"### Made of other metrics\n\n{table(('metric', 'meaning'), made)}"
    parameters = [(f"`{name}`", words(text)) for name, text in names.PARAMETERS.items()]
    yield (
        "## Parameters\n\nThe config itself, flattened: `model.init_args.width` is the parameter `model.width`. In "
        f"addition:\n\n{table(('parameter', 'meaning'), parameters)}"
    )
    tags = [one for one in documented() if one.name.startswith("TAG_")]
    yield f"## Tags\n\n{table(('tag', 'meaning'), ((f'`{one.text}`', words(one.meaning)) for one in tags))}"
    files = [one for one in documented() if one.part == "artifacts" and one.name != "SPOOL"]
    yield f"## Artifacts\n\n{table(('artifact', 'meaning'), ((f'`{one.text}`', words(one.meaning)) for one in files))}"


def _split(meaning: str) -> tuple[str, str]:
    text, _, unit = meaning.partition(" Unit: ")
    return words(text), unit.removesuffix(".")


if __name__ == "__main__":
    sys.stdout.write(page())
