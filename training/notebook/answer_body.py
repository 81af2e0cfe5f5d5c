"""The YAML inside an answer: a question, and the cells that answer it."""

import re
from collections.abc import Mapping
from typing import Any, Final

from scalebook.training.base import ConfigError
from scalebook.training.experiments import quoted_value
from scalebook.training.notebook.cells import AnswerCell
from scalebook.training.notebook.claim_body import read_metric

KEYS: Final = (
    "question", "experiment", "against", "metric", "target", "budget", "pilot", "searches", "comparison", "claims",
)  # fmt: skip
HELP: Final[Mapping[str, str]] = {
    "question": "The question to answer; `scalebook ask --help` lists the questions.",
    "experiment": "The experiment that the question is about.",
    "against": "The second experiment, for questions about two experiments.",
    "metric": "The metric that decides the question. `{my_score: max}` means that higher is better. The default is "
    "the model's main metric.",
    "target": "Value of the metric to reach. The default is chosen after the search for the learning rate.",
    "budget": "Time allowed for answering, such as 15m or 1h.",
    "pilot": (
        "The cell of the pilot run, which is a short first run. It shows how long a run takes and which metrics the "
        "model logs."
    ),
    "searches": "The search for the learning rate of each experiment.",
    "comparison": "The comparison of all sides.",
    "claims": "The claims that decide the question.",
}
"""What each key means."""
BUDGET_S: Final = 900.0
UNITS: Final = {"s": 1, "m": 60, "h": 3600}
TIME: Final = r"(\d+(?:\.\d+)?)(s|min|m|hours?|h)"


def read_answer(source: str, name: str, content: Mapping[str, Any]) -> AnswerCell:
    """The answer, whose keys are all known; ConfigError for the first value that is wrong."""
    for key in ("question", "experiment"):
        if not _name(content, key):
            raise ConfigError(key, "is missing", f"Set {key}: NAME.", "missing")
    metric, goal = read_metric(content["metric"]) if "metric" in content else ("", None)
    target = content.get("target")
    if target is not None and (isinstance(target, bool) or not isinstance(target, int | float)):
        raise ConfigError("target", "is not a number", "Set it to the value of the metric to reach, or remove it.")
    searches, claims = content.get("searches", {}), content.get("claims", [])
    if not isinstance(searches, Mapping) or not all(isinstance(word, str) for word in [*searches, *searches.values()]):
        raise ConfigError(
            "searches", "does not give a search for each experiment", "Set searches: {EXPERIMENT: SEARCH}."
        )
    if not isinstance(claims, list) or not all(isinstance(claim, str) for claim in claims):
        raise ConfigError("claims", "is not a list of claims", "Set claims: [NAME, NAME].")
    return AnswerCell(
        source, name, content["question"], content["experiment"], _name(content, "against"), metric, goal,
        None if target is None else float(target), read_budget(content.get("budget", BUDGET_S)),
        _name(content, "pilot"), dict(searches), _name(content, "comparison"), list(claims),
    )  # fmt: skip


def read_budget(value: object) -> float:
    """Seconds of `90s`, `15m`, `15 min`, `1h30m` or a number of seconds; ConfigError for anything else. Whether that is
    enough depends on the question: `asking/sizes.py`."""
    seconds = 0.0
    text = value.replace(" ", "").lower() if isinstance(value, str) else ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif re.fullmatch(rf"({TIME})+", text):
        seconds = sum(float(number) * UNITS[unit[0]] for number, unit in re.findall(TIME, text))
    if not 0 < seconds < 1e7:
        raise ConfigError("budget", f"is {quoted_value(value)}", "Set it to a time, such as 15m or 1h30m.")
    return seconds


def budget_text(seconds: float) -> str:
    """The inverse of `read_budget`: `15m`, `1h30m`, `90s`."""
    whole = round(seconds)
    if whole % 60:
        return f"{whole}s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}h" * bool(hours) + f"{minutes}m" * bool(minutes)


def _name(content: Mapping[str, Any], key: str) -> str | None:
    value = content.get(key)
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigError(key, f"is {quoted_value(value)}, not a name", f"Set {key}: NAME.")
    return value
