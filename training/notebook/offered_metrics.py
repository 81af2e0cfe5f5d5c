"""The metrics that a form offers for an experiment: what its runs have logged, and what is known before the first."""

from collections.abc import Iterable

from scalebook.training.experiments import Experiment, logged_metrics
from scalebook.training.tracking import RunRecord, directions, names


def offered(experiments: Iterable[Experiment], runs: Iterable[RunRecord]) -> list[str]:
    """The monitored metric first, then what the runs have logged while validating, the main one first, then what two
    batches have (`logged_metrics`), then what the source of the models names, then the loss of training. A monitored
    metric that no run has logged does not come before what runs have logged."""
    listed = list(experiments)
    recorded = {name for run in runs for name in run.metrics}
    logged = names.validation_metrics(recorded)
    main = names.main_metric(logged)
    written = _written(listed)
    candidates = [*([main] if main else []), *logged, *_seen(listed), *written]
    monitored = [name for one in listed for name in directions.monitored(one.callbacks) if name in candidates]
    training = names.own_training_loss(recorded) or names.TRAIN_LOSS
    return list(dict.fromkeys([*monitored, *candidates, training]))


def unnamed(experiments: Iterable[Experiment], runs: Iterable[RunRecord]) -> str:
    """The metric of a cell that names none: `val/loss` where its runs have it (its models, before the first run), else
    their main one."""
    metrics = {name for run in runs for name in run.metrics} or set(_written(experiments))
    return names.VAL_LOSS if names.VAL_LOSS in metrics else names.main_metric(metrics) or names.TRAIN_LOSS


def _seen(experiments: Iterable[Experiment]) -> list[str]:
    """What two batches of them have logged while validating, where somebody has asked."""
    logged = [logged_metrics.cached_metrics(experiment) for experiment in experiments]
    return [metric for metrics in logged if metrics for metric in metrics.validation]


def _written(experiments: Iterable[Experiment]) -> list[str]:
    """What the source of the models names."""
    infos = [experiment.model.info for experiment in experiments]
    return [metric for info in infos if info for metric in info.metrics]
