"""Whether the smaller or the larger value of a metric is better, and who decided that."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from scalebook.training.tracking import names

Goal = Literal["min", "max"]
GOALS: Final[tuple[Goal, ...]] = ("min", "max")
Source = Literal["said", "recorded", "name", "guess"]

LOWER_WORDS: Final = (
    "loss losses error errors err mae mse rmse msle mape smape nll bits bpc bpd perplexity ppl wer cer "
    "ter fid kid lpips divergence kl distance brier ece calibration deviance entropy regret seconds "
    "samples updates bytes"
)
LOWER: Final = frozenset(LOWER_WORDS.split())
HIGHER_WORDS: Final = (
    "acc accuracy auc auroc roc auprc ap map mar f1 fbeta precision recall sensitivity specificity mrr "
    "ndcg chrf bleu rouge meteor r2 iou miou jaccard dice psnr ssim kappa mcc matthews corrcoef pearson "
    "spearman kendall concordance top hit hits reward return likelihood elbo pesq stoi snr sdr variance"
)
HIGHER: Final = frozenset(HIGHER_WORDS.split())
"""Words of metric names: `val_MulticlassF1Score` has four, and `top_5`, `top5` and `top` are the same word."""


@dataclass(frozen=True)
class Direction:
    """`source`: the user said it; the run recorded it (from its config or torchmetrics); the metric's name; a guess."""

    lower: bool
    source: Source

    @property
    def guessed(self) -> bool:
        return self.source == "guess"

    @property
    def plain(self) -> str:
        return f"{'lower' if self.lower else 'higher'} is better"

    @property
    def words(self) -> str:
        return f"{self.plain}, guessed" if self.guessed else self.plain

    @property
    def other(self) -> Goal:
        """The opposite direction, as a user writes it."""
        return "max" if self.lower else "min"

    def remedy(self, metric: str) -> str:
        """What to write if the direction is wrong."""
        return f"If the opposite is true, set metric: {{{metric}: {self.other}}}."


def direction(metric: str, chosen: Goal | None = None, recorded: Mapping[str, Goal] | None = None) -> Direction:
    """The direction of a metric, decided by the first that is known: what the user has `chosen`, what the run or its
    config has recorded, the name; else the guess is lower."""
    if chosen is not None:
        return Direction(chosen == "min", "said")
    if recorded and metric in recorded:
        return Direction(recorded[metric] == "min", "recorded")
    words = _words(metric)
    if words & LOWER:
        return Direction(True, "name")
    return Direction(False, "name") if words & HIGHER else Direction(True, "guess")


def of_runs(
    metric: str,
    chosen: Goal | None,
    tags: Iterable[Mapping[str, str]],
    callbacks: Iterable[object] = (),
) -> Direction:
    """Like `direction`, for runs with these tags and experiments with these callbacks; runs override experiments."""
    tags = list(tags)
    chosen = chosen or recorded_directions(tags, names.TAG_GOALS).get(metric)
    recorded: dict[str, Goal] = {}
    for listed in callbacks:
        recorded |= {name: goal for name, goal in modes(listed).items() if name not in recorded}
    return direction(metric, chosen, recorded | recorded_directions(tags))


def read_metric_name(raw: Any) -> tuple[str, Goal | None] | None:
    """Parse a metric as a cell writes it: `val/loss`, or with its direction, `{val/iou: max}`; None if it is
    neither."""
    if isinstance(raw, str) and raw.strip():
        return raw, None
    if isinstance(raw, Mapping) and len(raw) == 1:
        ((name, goal),) = raw.items()
        if isinstance(name, str) and name.strip() and goal in GOALS:
            return name, goal
    return None


def metric_text(metric: str, goal: Goal | None) -> str | dict[str, Goal]:
    """The inverse of `read_metric_name`."""
    return metric if goal is None else {metric: goal}


def modes(callbacks: object) -> dict[str, Goal]:
    """By metric, the `mode` in a config's callbacks (ModelCheckpoint, EarlyStopping), if it is written and they
    agree."""
    by_metric: dict[str, set[Goal]] = {}
    for args in _monitors(callbacks):
        if args.get("mode") in GOALS:
            by_metric.setdefault(args["monitor"], set()).add(args["mode"])
    return {metric: goals.pop() for metric, goals in by_metric.items() if len(goals) == 1}


def monitored(callbacks: object) -> list[str]:
    """The metrics that the callbacks of a config's trainer monitor, in order."""
    return list(dict.fromkeys(args["monitor"] for args in _monitors(callbacks)))


def _monitors(callbacks: object) -> Iterator[Mapping[str, Any]]:
    listed: Sequence[Any] = callbacks if isinstance(callbacks, list) else [callbacks]
    for callback in listed:
        args = callback.get("init_args") if isinstance(callback, Mapping) else None
        if isinstance(args, Mapping) and isinstance(args.get("monitor"), str):
            yield args


def as_tag(directions: Mapping[str, Goal]) -> str:
    """Directions as the text of a run's tag."""
    return json.dumps(dict(sorted(directions.items())))


def recorded_directions(tags: Iterable[Mapping[str, str]], key: str = names.TAG_DIRECTIONS) -> dict[str, Goal]:
    """By metric, what runs have recorded in this tag; the first run decides."""
    goals: dict[str, Goal] = {}
    for text in (run_tags.get(key, "") for run_tags in tags):
        try:
            recorded = json.loads(text) if text else {}
        except ValueError:
            continue  # not of our writing
        for metric, goal in recorded.items() if isinstance(recorded, dict) else ():
            if goal in GOALS:
                goals.setdefault(metric, cast(Goal, goal))
    return goals


def _words(metric: str) -> set[str]:
    parts = re.findall(r"[A-Z]+\d*(?![a-z])|[A-Z]?[a-z]+\d*", metric)
    lower = [part.lower() for part in parts]
    return {*lower, *(part.rstrip("0123456789") for part in lower)}
