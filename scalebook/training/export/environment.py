"""What the runs of a document ran on, as recorded with them, and how to run them again."""

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from scalebook.training.export.document import Block, Facts, Heading, Remark, SourceText
from scalebook.training.notebook.cells import Notebook
from scalebook.training.tracking import names
from scalebook.training.tracking.reading import RunRecord

PACKAGES: Final = {
    "scalebook": "Scalebook", "python": "Python", "torch": "PyTorch", "lightning": "Lightning", "mlflow": "MLflow",
    "optuna": "Optuna", "numpy": "NumPy",
}  # fmt: skip
LONGEST: Final = 100
MOST_KINDS: Final = 5


def environment_blocks(runs: Sequence[RunRecord], nb: Notebook, name: str, modules: Sequence[str]) -> list[Block]:
    """`name` is the notebook's file name, `modules` what the workspace's settings name."""
    blocks: list[Block] = [Heading("Environment"), *_recorded(runs), Heading("Run it again")]
    needed = "Scalebook" + (f" and {', '.join(modules)}, modules of the notebook's own folder" if modules else "")
    blocks.append(Remark(f"What is needed: {needed}, and this notebook's text in a file {name}."))
    return [*blocks, SourceText("Commands", "\n".join(_commands(nb, shlex.quote(name))), "sh", folded=False)]


def _recorded(runs: Sequence[RunRecord]) -> list[Block]:
    if not runs:
        return [Remark("No run is recorded.")]
    versions = [_versions(run.tags.get(names.TAG_VERSIONS, "")) for run in runs]
    pairs = [(shown, _said(version.get(key, "") for version in versions)) for key, shown in PACKAGES.items()]
    pairs.append(("machine", _said(run.tags.get(names.TAG_MACHINE, "") for run in runs)))
    pairs.append(("commit", _said(run.tags.get(names.TAG_COMMIT, "")[:12] for run in runs)))
    facts = [(key, value) for key, value in pairs if value]
    count = f"As recorded with {len(runs)} run{'' if len(runs) == 1 else 's'} of this document."
    return [Facts(facts), Remark(count)] if facts else [Remark("Their runs say nothing of it.")]


def _versions(text: str) -> dict[str, str]:
    """What a run's tag says; nothing where somebody else has written it in another way."""
    try:
        versions = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return {str(key): str(value)[:LONGEST] for key, value in versions.items()} if isinstance(versions, dict) else {}


def _said(values: Iterable[str]) -> str:
    """`2.9.0`; where the runs differ `2.9.0 (3 runs), 2.8.0 (1 run)`."""
    many = Counter(value[:LONGEST] for value in values if value)
    if len(many) < 2:
        return next(iter(many), "")
    said = [f"{value} ({count} run{'' if count == 1 else 's'})" for value, count in many.most_common(MOST_KINDS)]
    return ", ".join([*said, *(["…"] if len(many) > MOST_KINDS else [])])


def _commands(nb: Notebook, file: str) -> list[str]:
    commands = [f"scalebook notebook check {file}"]
    if nb.experiments():
        commands.append(f"scalebook notebook run {file}")
    return [*commands, *(f"scalebook search run {file} --cell {shlex.quote(search.name)}" for search in nb.searches())]
