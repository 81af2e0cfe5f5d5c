"""Whether the smaller or the larger value of a metric is better, and who says so."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
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
"""As words of a name, in which `val_MulticlassF1Score` has four, and `top_5`, `top5` and `top` are one."""


@dataclass(frozen=True)
class Direction:
    """`source`: a person said it; the run recorded it (of its config, or of torchmetrics); its name tells; a guess."""

    lower: bool
    source: Source

    @property
    def guessed(self) -> bool:
        return self.source == "guess"

    @property
    def words(self) -> str:
        return f"{'lower' if self.lower else 'higher'} is better{', a guess' if self.guessed else ''}"


def direction(metric: str, said: Goal | None = None, recorded: Mapping[str, Goal] | None = None) -> Direction:
    """What a person said comes first, then what the run or its config says, then the name; else lower."""
    if said is not None:
        return Direction(said == "min", "said")
    if recorded and metric in recorded:
        return Direction(recorded[metric] == "min", "recorded")
    words = _words(metric)
    if words & LOWER:
        return Direction(True, "name")
    return Direction(False, "name") if words & HIGHER else Direction(True, "guess")


def lower_is_better(metric: str) -> bool:
    """By its name alone."""
    return direction(metric).lower


def modes(config: Mapping[str, Any]) -> dict[str, Goal]:
    """`mode` of what a config's callbacks monitor (ModelCheckpoint, EarlyStopping), where it is written and they
    agree."""
    trainer = config.get("trainer")
    callbacks = trainer.get("callbacks") if isinstance(trainer, Mapping) else None
    listed: Sequence[Any] = callbacks if isinstance(callbacks, list) else [callbacks]
    found: dict[str, set[Goal]] = {}
    for callback in listed:
        args = callback.get("init_args") if isinstance(callback, Mapping) else None
        if isinstance(args, Mapping) and isinstance(args.get("monitor"), str) and args.get("mode") in GOALS:
            found.setdefault(args["monitor"], set()).add(args["mode"])
    return {metric: goals.pop() for metric, goals in found.items() if len(goals) == 1}


def told(directions: Mapping[str, Goal]) -> str:
    """As the tag of a run says it."""
    return json.dumps(dict(sorted(directions.items())))


def recorded(tags: Iterable[Mapping[str, str]]) -> dict[str, Goal]:
    """What runs have recorded, by metric, from their tags; the first that says it decides."""
    found: dict[str, Goal] = {}
    for text in (one.get(names.TAG_DIRECTIONS, "") for one in tags):
        try:
            said = json.loads(text) if text else {}
        except ValueError:
            continue  # not of our writing
        for metric, goal in said.items() if isinstance(said, dict) else ():
            if goal in GOALS:
                found.setdefault(metric, cast(Goal, goal))
    return found


def _words(metric: str) -> set[str]:
    parts = re.findall(r"[A-Z]+\d*(?![a-z])|[A-Z]?[a-z]+\d*", metric)
    lower = [part.lower() for part in parts]
    return {*lower, *(part.rstrip("0123456789") for part in lower)}
