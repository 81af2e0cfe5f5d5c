"""What a config may not ask for if its model has sparse tables, and which optimizers do not fit the model's parameters.

Checked once the model's parameters are known (`model_parameters`), which a form looks up as soon as something `asks`
for it; the run's own process looks before it starts anything.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from scalebook.training.base.errors import Problem
from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.rules.table_conflicts import (
    SPARSE_ALONE,
    settings_beside_tables,
    unfit_for_dense,
    unfit_for_rows,
)
from scalebook.training.experiments.argument_keys import problem_of
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.model_parameters import ModelParameter, cached_parameters, find_out
from scalebook.training.experiments.strategies import AsyncPSSettings, PeersSettings

TORCHS: Final = "torch.optim."


def problems(experiment: Experiment) -> Iterator[Problem]:
    """The errors, if the model is known; else none."""
    if not (experiment.strategy.joins_engine or asks(experiment)):
        return
    model = cached_parameters(experiment)
    if model is None:
        return
    if experiment.strategy.joins_engine and any(one.sparse for one in model.parameters):
        yield from map(problem_of, _forbidden(experiment))
    optimizer = _optimizer(experiment)
    why = unfit(model.parameters, *optimizer, experiment.strategy.joins_engine) if optimizer else None
    if why:
        yield problem_of(why)


def unfit(
    parameters: Sequence[ModelParameter], name: str, settings: Mapping[str, Any], is_server: bool
) -> ArgumentError | None:
    """Why torch's optimizer of this name cannot train a model with these parameters, as far as is known."""
    trained = [parameter for parameter in parameters if parameter.trained]
    has_tables = any(parameter.sparse for parameter in trained)
    why = unfit_for_dense(name, [parameter.name for parameter in trained if not parameter.sparse], has_tables)
    return why or (unfit_for_rows(name, settings) if has_tables and is_server else None)


def asks(experiment: Experiment) -> bool:
    """Whether the validity of the experiment depends on the model's parameters."""
    optimizer = _optimizer(experiment)
    return (optimizer is not None and optimizer[0] == SPARSE_ALONE) or bool(_forbidden(experiment))


def inspect_model(experiment: Experiment) -> bool:
    """Find out the model's parameters, some 6 s, if something asks for them, or a codec does, and they are unknown;
    returns whether it did."""
    has_codec = any(codec.codes for codec in experiment.strategy.codecs.values())
    if not (has_codec or asks(experiment)) or cached_parameters(experiment) is not None:
        return False
    find_out(experiment)
    return True


def _forbidden(experiment: Experiment) -> list[ArgumentError]:
    """What tables would forbid of the strategy's arguments."""
    strategy = experiment.strategy
    if isinstance(strategy, PeersSettings):
        return settings_beside_tables("peers", {}, keeps_squares=False) if strategy.exchange else []
    if not isinstance(strategy, AsyncPSSettings):
        return []
    facts = strategy.local_facts
    adaptive = strategy.damping is not None and strategy.damping.settings().get("adaptive") is True
    codes = {name: codec.name for name, codec in strategy.codecs.items() if codec.codes}
    local = strategy.local.word if strategy.local and (facts.steps or facts.sums) else None
    return settings_beside_tables(local, codes, adaptive)


def _optimizer(experiment: Experiment) -> tuple[str, Mapping[str, Any]] | None:
    """Name and settings of the one that is used, as torch calls it; None where the model has its own."""
    info = experiment.optimizer.info
    if info is None:
        return None
    name = info.name if info.class_path.startswith(TORCHS) else info.class_path
    return name, experiment.optimizer.args
