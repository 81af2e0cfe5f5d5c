"""What a model's parameters forbid: of codecs, of optimizers, and, if it has sparse tables, of other settings.

Checked once the parameters are known (`model_parameters`), which a form looks up as soon as something `asks` for them;
the run's own process looks before it starts anything.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from scalebook.training.base import Problem
from scalebook.training.engine.rules import ArgumentError, Codec, table_conflicts
from scalebook.training.experiments.argument_keys import key_of, problem_of
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.model_parameters import ModelParameter, cached_parameters, find_out
from scalebook.training.experiments.strategies import AsyncPSSettings, PeersSettings

ON_A_GPU: Final = "Use bf16, fp16 or fp32, or set accelerator: cpu."
TORCHS: Final = "torch.optim."


def problems(experiment: Experiment) -> Iterator[Problem]:
    """Errors, and warnings about codecs without effect."""
    yield from _codec_problems(experiment)
    yield from _table_problems(experiment)


def _codec_problems(experiment: Experiment) -> Iterator[Problem]:
    """What the model's shapes, where they are known, and DDP forbid of codecs."""
    for name, codec in experiment.strategy.codecs.items():
        if codec.codes:
            is_ddp = name == "codec" and experiment.strategy.name == "ddp"
            own = _ddp_problems(codec, experiment) if is_ddp else _without_effect(name, codec)
            yield from own or _model_problems(name, codec, experiment)


def _model_problems(name: str, codec: Codec, experiment: Experiment) -> list[Problem]:
    """What the engine refuses when it starts, said before."""
    model = cached_parameters(experiment)
    if model is None or not model.parameters:
        return []
    whole = [parameter for parameter in model.parameters if not parameter.dtype.startswith(("float", "bfloat"))]
    if whole and name != "codec":
        why = f"is {codec.name}, but {whole[0].name} has dtype {whole[0].dtype}, which no codec supports"
        return [Problem("contradiction", key_of(name), why, "Use fp32, or make the parameter a buffer of the model.")]
    if any(parameter.sparse for parameter in model.parameters) and name != "codec":
        return []  # said by `_table_problems`
    try:
        codec.check(model.shapes, name)
    except ArgumentError as error:
        problem = problem_of(error)
        return [problem.moved_to(problem.key, "of ")]
    return []


def _without_effect(name: str, codec: Codec) -> list[Problem]:
    if name != "pull_codec" or not codec.error_feedback or type(codec)().error_feedback:
        return []
    return [
        Problem(
            "no-effect",
            key_of(f"{name}.error_feedback"),
            "has no effect on pulls, because each pull sends the newest parameters anyway",
            "Remove it.",
            "warning",
        )
    ]


def _ddp_problems(codec: Codec, experiment: Experiment) -> list[Problem]:
    key = key_of("codec")
    if experiment.accelerator in ("gpu", "cuda") and not codec.in_halves:
        return [Problem("contradiction", key, f"is {codec.name}, which works on a CPU only", ON_A_GPU)]
    if experiment.strategy.workers == 1:
        return [
            Problem("no-effect", key, "has no effect, because there is only one worker", "Use more workers.", "warning")
        ]
    return []


def _table_problems(experiment: Experiment) -> Iterator[Problem]:
    """What a model with sparse tables forbids, if it is known; and optimizers that do not fit the parameters."""
    if not (experiment.strategy.joins_engine or asks_for_parameters(experiment)):
        return
    model = cached_parameters(experiment)
    if model is None:
        return
    if experiment.strategy.joins_engine and any(one.sparse for one in model.parameters):
        yield from map(problem_of, _forbidden(experiment))
    optimizer = _optimizer(experiment)
    why = unfit_optimizer(model.parameters, *optimizer, experiment.strategy.joins_engine) if optimizer else None
    if why:
        yield problem_of(why)


def unfit_optimizer(
    parameters: Sequence[ModelParameter], name: str, settings: Mapping[str, Any], is_server: bool
) -> ArgumentError | None:
    """Why the optimizer with this class path cannot train a model with these parameters, as far as is known."""
    name = name.removeprefix(TORCHS)
    trained = [parameter for parameter in parameters if parameter.trained]
    has_tables = any(parameter.sparse for parameter in trained)
    why = table_conflicts.unfit_for_dense(
        name, [parameter.name for parameter in trained if not parameter.sparse], has_tables
    )
    return why or (table_conflicts.unfit_for_rows(name, settings) if has_tables and is_server else None)


def asks_for_parameters(experiment: Experiment) -> bool:
    """Whether the validity of the experiment depends on the model's parameters."""
    optimizer = _optimizer(experiment)
    return (optimizer is not None and optimizer[0] == f"{TORCHS}{table_conflicts.SPARSE_ALONE}") or bool(
        _forbidden(experiment)
    )


def inspect_model(experiment: Experiment) -> bool:
    """Find out the model's parameters, some 6 s, if something asks for them, or a codec does, and they are unknown;
    returns whether it did."""
    has_codec = any(codec.codes for codec in experiment.strategy.codecs.values())
    if not (has_codec or asks_for_parameters(experiment)) or cached_parameters(experiment) is not None:
        return False
    find_out(experiment)
    return True


def _forbidden(experiment: Experiment) -> list[ArgumentError]:
    """What tables would forbid of the strategy's arguments."""
    strategy = experiment.strategy
    if isinstance(strategy, PeersSettings):
        return table_conflicts.settings_beside_tables("peers", {}, keeps_squares=False) if strategy.exchange else []
    if not isinstance(strategy, AsyncPSSettings):
        return []
    facts = strategy.local_facts
    adaptive = strategy.damping is not None and strategy.damping.settings().get("adaptive") is True
    codes = {name: codec.name for name, codec in strategy.codecs.items() if codec.codes}
    local = strategy.local.word if strategy.local and (facts.steps or facts.sums) else None
    return table_conflicts.settings_beside_tables(local, codes, adaptive)


def _optimizer(experiment: Experiment) -> tuple[str, Mapping[str, Any]] | None:
    """Class path and settings of the one that is used; None where the model has its own."""
    info = experiment.optimizer.info
    return None if info is None else (info.class_path, experiment.optimizer.args)
