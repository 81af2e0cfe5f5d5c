"""Common searches, made to measure for an experiment."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from scalebook.training.base import ConfigError
from scalebook.training.engine.rules import RULES
from scalebook.training.experiments.classes import suggestion
from scalebook.training.experiments.data_paths import training_samples
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.search.definition import search_problems
from scalebook.training.experiments.search.point import STRATEGIES, batch_place, rate_place
from scalebook.training.experiments.strategies import SingleProcess
from scalebook.training.tracking import names

PER: Final = 256
"""Samples that a learning rate of the preset `batch-size` is given for (Goyal et al. 2017)."""

LEAST_BATCH: Final = 8
LEAST_UPDATES: Final = 2
"""Fewest updates of an epoch, at the largest batch."""

COMPARED: Final = tuple(word for word in STRATEGIES if word not in RULES or not RULES[word].gathers)
"""Strategies of the preset `strategies`: a rule that averages over workers reaches what DDP does."""

RUNGS: Final = 10


@dataclass(frozen=True)
class Preset:
    """One kind of search. `text` says in a sentence what it answers; `needs` are handles that the config must have."""

    name: str
    title: str
    text: str
    needs: tuple[str, ...]


PRESETS: Final = (
    Preset(
        "batch-size",
        "Batch size x learning rate",
        "Shows which batch sizes train well, and how the best learning rate changes with the batch.",
        ("batch_size", "learning_rate"),
    ),
    Preset(
        "strategies",
        "Strategy x workers x learning rate",
        "Compares what one process, DDP and a parameter server reach, and how fast, each at its best learning rate.",
        ("learning_rate",),
    ),
    Preset(
        "largest-rate",
        "Largest rate that trains",
        "Shows how high the learning rate can be before training diverges, for each number of workers.",
        ("learning_rate",),
    ),
)


def preset_body(name: str, experiment: Experiment, cores: int, gpus: int = 0) -> dict[str, Any]:
    """The body of search `name` over `config`, without `experiment:` or `config:`, for the caller to add.

    Ranges come from the config's own values, the size of its data, and the cores of this machine, or the `gpus` that
    the config computes on. ConfigError where the config lacks what the preset varies.
    """
    preset = next((candidate for candidate in PRESETS if candidate.name == name), None)
    if preset is None:
        raise ConfigError("preset", f"is unknown: {name}", suggestion(name, [item.name for item in PRESETS]))
    if "batch_size" in preset.needs:
        batch_place(experiment)
    rate_place(experiment)
    make = {"batch-size": _batch_size, "strategies": _strategies, "largest-rate": _largest_rate}[name]
    places = gpus * experiment.threads if gpus else cores
    body = make(experiment, places)
    words, workers = (body["space"].get(key, {}).get("values", []) for key in ("strategy", "workers"))
    if gpus and "ddp" in words and max(workers) > gpus:
        body["space"]["strategy"] = {"values": [word for word in words if word != "ddp"]}
    return {"preset": name, **body}


def _batch_size(experiment: Experiment, cores: int) -> dict[str, Any]:
    base = experiment.batch.together or 32
    samples = training_samples(experiment)
    workers = experiment.strategy.workers
    shared = _power(workers) == workers  # powers of two can be shared out among them
    least = min(LEAST_BATCH, _power(base))
    low = max(least, workers) if shared else least
    most = max(1024, 32 * _power(base))
    high = max(low, min(most, _power(samples // LEAST_UPDATES)) if samples is not None else most)
    scaling = experiment.scaling
    asked_for = scaling.per if scaling is not None else experiment.batch.averaged or 32
    rate = {**_around(_rate(experiment) * PER / asked_for, 30), "per": PER, "rule": "linear"}
    return {
        "objective": _metric(experiment),
        "scaling": "strong" if shared else "weak",
        "space": {
            "batch_size": {"powers_of_two": [low, high]},
            "learning_rate": {**rate, "warmup_epochs": _warmup(experiment)},
        },
        "sampler": "tpe",
        "pruner": "median",
        "trials": 60,
        "seeds": 1,
    }


def _strategies(experiment: Experiment, cores: int) -> dict[str, Any]:
    workers = _workers(experiment, cores)[1:]
    space = {"workers": {"values": workers}, "learning_rate": _around(_rate(experiment), 10)}
    body: dict[str, Any] = {
        "objective": [_metric(experiment), "seconds"],
        "scaling": "weak" if experiment.batch.together is None or experiment.batch.together % workers[-1] else "strong",
        "space": space,
        "sampler": "tpe",
        "pruner": "none",
        "trials": 60,
        "seeds": 1,
        "exclusive": True,
    }
    words = [word for word in COMPARED if _possible(body, {"strategy": {"values": [word]}}, experiment)]
    return {**body, "space": {"strategy": {"values": words}, **space}}


def _largest_rate(experiment: Experiment, cores: int) -> dict[str, Any]:
    rates = [float(f"{_rate(experiment) * 2**rung:.3g}") for rung in range(-1, RUNGS - 1)]
    body: dict[str, Any] = {
        "objective": _metric(experiment),
        "scaling": "weak",
        "space": {"learning_rate": {"grid": rates}},
        "sampler": "grid",
        "pruner": "none",
        "seeds": 1,
    }
    strategy = {"strategy": {"values": ["async"]}} if isinstance(experiment.strategy, SingleProcess) else {}
    if not _possible(body, strategy, experiment):
        strategy = {}
    workers = [
        worker
        for worker in _workers(experiment, cores)
        if _possible(body, {**strategy, "workers": {"values": [worker]}}, experiment)
    ]
    space = {**strategy, "workers": {"values": workers}, **body["space"]}
    return {**body, "space": space, "trials": len(workers) * len(rates)}


def _possible(body: Mapping[str, Any], more: Mapping[str, Any], experiment: Experiment) -> bool:
    """Whether the search is without an error once its space has `more`."""
    body_ = {**body, "space": {**body["space"], **more}}
    return all(problem.severity == "warning" for problem in search_problems(body_, experiment, experiment.description))


def _workers(experiment: Experiment, cores: int) -> list[int]:
    """1, 2, 4 ... as far as each has cores of its own; at least 1 and 2."""
    most = max(2, cores // experiment.threads)
    return [2**exponent for exponent in range(most.bit_length()) if 2**exponent <= most]


def _around(rate: float, factor: float) -> dict[str, Any]:
    """A logarithmic range about `rate`, its ends to one digit."""
    return {"log_uniform": [float(f"{rate / factor:.1g}"), float(f"{rate * factor:.1g}")]}


def _rate(experiment: Experiment) -> float:
    rate = experiment.rate.requested
    return rate if rate and rate > 0 else 0.01


def _metric(experiment: Experiment) -> str:
    """The model's main one."""
    model = experiment.model.info
    return model.metrics[0] if model is not None and model.metrics else names.TRAIN_LOSS


def _warmup(experiment: Experiment) -> float:
    """A tenth of the epochs, five at most (Goyal et al. 2017: 5 of 90)."""
    epochs = experiment.trainer.get("max_epochs")
    return round(min(5.0, epochs / 10), 1) if isinstance(epochs, int) and epochs > 0 else 1.0


def _power(value: int) -> int:
    """The largest power of two up to `value`, 1 at least."""
    return 1 << max(1, value).bit_length() - 1
