"""The YAML of a cell: what an experiment and a comparison may say, and on which line a key stands.
`training/experiments/search` reads searches, `claim_body` claims."""

import copy
import difflib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, get_args

from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import Node

from scalebook.training.base import ConfigError
from scalebook.training.base.files import yaml
from scalebook.training.experiments.search import keys
from scalebook.training.notebook.answer_body import HELP as ANSWER_HELP
from scalebook.training.notebook.answer_body import KEYS as ANSWER_KEYS
from scalebook.training.notebook.answer_body import read_answer
from scalebook.training.notebook.cells import (
    AnswerCell,
    Axis,
    BrokenCell,
    ClaimCell,
    ComparisonCell,
    ExperimentCell,
    Kind,
    Scale,
    SearchCell,
)
from scalebook.training.notebook.claim_body import HELP as CLAIM_HELP
from scalebook.training.notebook.claim_body import KEYS as CLAIM_KEYS
from scalebook.training.notebook.claim_body import read_claim, read_metric


def composed(text: str) -> Node | None:
    """The nodes of `text`; None where it is empty or cannot be read."""
    try:
        return yaml.compose(text)
    except ConfigError:
        return None


Told = ExperimentCell | ComparisonCell | SearchCell | ClaimCell | AnswerCell
KEYS: Final[dict[Kind, tuple[str, ...]]] = {
    "experiment": ("repeats", "config"),
    "comparison": ("runs", "metric", "x", "target", "scale"),
    "search": keys.KEYS,
    "claim": CLAIM_KEYS,
    "answer": ANSWER_KEYS,
}
HELP: Final[dict[Kind, Mapping[str, str]]] = {
    "experiment": {
        "repeats": "Number of runs, each with the next seed. With three or more runs, there is an interval.",
        "config": "A LightningCLI `fit` config.",
    },
    "comparison": {
        "runs": "The experiments to compare. Each becomes a line in the chart and a row in the table, based on its "
        "newest runs.",
        "metric": "The metric to compare. `{my_score: max}` means that higher is better. The default is the main "
        "metric of the runs.",
        "x": "X axis: updates, samples, seconds or bytes. If you list several, the cell has a switch between them, "
        "set to the first.",
        "target": "A value of the metric to reach. Adds the updates, samples and seconds that each run took to reach "
        "the value.",
        "scale": "Scale of the metric's axis: linear or log.",
    },
    "search": keys.HELP,
    "claim": CLAIM_HELP,
    "answer": ANSWER_HELP,
}
"""What each key means."""
AXES: Final[tuple[Axis, ...]] = get_args(Axis)
SCALES: Final[tuple[Scale, ...]] = get_args(Scale)
MOST_REPEATS: Final = 1000


def read_body(source: str, kind: Kind, name: str, body: str) -> Told | BrokenCell:
    """The cell, or a BrokenCell that says on which line what is wrong. The content of a search is not checked."""
    try:
        content = load_mapping(body)
        if kind == "search":
            return SearchCell(source, name, content)
        _known_keys(content, kind)
        if kind == "claim":
            return read_claim(source, name, content)
        if kind == "answer":
            return read_answer(source, name, content)
        return _experiment(source, name, content) if kind == "experiment" else _comparison(source, name, content)
    except ConfigError as error:
        problem = error.problem
        line = _line_of_mistake(error, body)
        return BrokenCell(source, kind, name, f"{problem.message.rstrip('.')}. {problem.fix}", problem.key, line)


def load_mapping(body: str) -> dict[str, Any]:
    """The YAML of a cell as plain values; ConfigError where it is not a mapping or no tree."""
    return copy.deepcopy(_mapping(body))


@lru_cache(maxsize=512)
def _mapping(body: str) -> dict[str, Any]:
    """Parsing takes 10 ms, and a page parses its notebook each time that it is drawn."""
    try:
        content = yaml.load(body)
    except ConfigError as error:
        problem = error.problem
        key = "YAML" if problem.key.startswith("line ") else problem.key
        raise ConfigError(key, problem.message, problem.fix) from error.__cause__
    if content is None:
        raise ConfigError("cell", "is empty", "Add its YAML between the fences.")
    if not isinstance(content, Mapping):
        raise ConfigError("cell", "is not a mapping", "Use one `key: value` per line.")
    return dict(content)


def _known_keys(content: Mapping[str, Any], kind: Kind) -> None:
    for key in content:
        if key not in KEYS[kind]:
            near = difflib.get_close_matches(str(key), KEYS[kind], 1)
            if kind == "claim" and key == "choose_by":
                raise ConfigError(
                    key,
                    "is no longer a key of a claim, because all seeds are used both to choose the best point and to "
                    "judge the claim",
                    "Remove it.",
                )
            in_config = kind == "experiment" and key in yaml.TOP_KEYS
            remedy = "Indent it below `config:`." if in_config else f"Use one of these keys: {', '.join(KEYS[kind])}."
            raise ConfigError(
                str(key),
                f"is not a key of {'an' if kind in ('experiment', 'answer') else 'a'} {kind}",
                f"Did you mean `{near[0]}`?" if near else remedy,
            )


def _experiment(source: str, name: str, content: Mapping[str, Any]) -> ExperimentCell:
    repeats = content.get("repeats", 1)
    if not _is_int(repeats) or not 1 <= repeats <= MOST_REPEATS:
        raise ConfigError("repeats", "is not a number of seeds", f"Set it to a whole number from 1 to {MOST_REPEATS}.")
    config = content.get("config")
    if not isinstance(config, Mapping):
        what = "is missing" if config is None else "is not a mapping"
        raise ConfigError("config", what, "Add `config:`, with the keys model, data, trainer ... below it.")
    return ExperimentCell(source, name, repeats, dict(config))


def _comparison(source: str, name: str, content: Mapping[str, Any]) -> ComparisonCell:
    runs = content.get("runs")
    if not isinstance(runs, list) or not runs or not all(isinstance(run, str) for run in runs):
        raise ConfigError("runs", "is not a list of experiments", "Set runs: [NAME, NAME].")
    metric, goal = read_metric(content["metric"]) if "metric" in content else ("", None)
    axes = content.get("x", ["updates"])
    axes = [axes] if isinstance(axes, str) else axes
    if not isinstance(axes, list) or not axes or not all(axis in AXES for axis in axes):
        raise ConfigError("x", "is not an axis", f"Set x to some of [{', '.join(AXES)}].")
    target = content.get("target")
    if target is not None and not (_is_int(target) or isinstance(target, float)):
        raise ConfigError("target", "is not a number", "Set it to the value of the metric to reach, or remove it.")
    scale = content.get("scale", SCALES[0])
    if scale not in SCALES:
        raise ConfigError("scale", "is not a known scale", f"Set scale: {' or '.join(SCALES)}.")
    reach = None if target is None else float(target)
    return ComparisonCell(source, name, list(runs), metric, list(axes), reach, scale, goal)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _line_of_mistake(error: ConfigError, body: str) -> int:
    """Within the cell: the opening fence is line 0, so line n of the body, from 0, is n + 1."""
    cause = error.__cause__
    if isinstance(cause, MarkedYAMLError) and cause.problem_mark is not None:
        return int(cause.problem_mark.line) + 1
    return (
        (yaml.line_of(composed(body), error.problem.key) or 0) + 1 if error.problem.key not in ("YAML", "cell") else 0
    )
