"""What is wrong with the codecs of an experiment beyond their bounds."""

from collections.abc import Iterator
from typing import Final

from scalebook.training.base.errors import Problem
from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.rules.codecs import Codec, in_halves
from scalebook.training.experiments.argument_keys import key_of, problem_of
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.model_parameters import cached_parameters

ON_A_GPU: Final = "Write bf16, fp16 or fp32, or accelerator: cpu."


def problems(experiment: Experiment) -> Iterator[Problem]:
    """Errors and warnings: what the model's shapes, where they are known, and DDP forbid."""
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
        why = f"is {codec.name}, and {whole[0].name} is of {whole[0].dtype}, which no codec carries"
        return [Problem("contradiction", key_of(name), why, "Write fp32, or make it a buffer of the model.")]
    if any(parameter.sparse for parameter in model.parameters) and name != "codec":
        return []  # said by `sparse_tables`
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
            "has no effect on pulls: each pull brings the newest parameters anyway",
            "Remove it.",
            "warning",
        )
    ]


def _ddp_problems(codec: Codec, experiment: Experiment) -> list[Problem]:
    key = key_of("codec")
    if experiment.accelerator in ("gpu", "cuda") and not in_halves(codec):
        return [Problem("contradiction", key, f"is {codec.name}, which works on a CPU only", ON_A_GPU)]
    if experiment.strategy.workers == 1:
        return [Problem("no-effect", key, "has no effect: there is only one worker", "Use more workers.", "warning")]
    return []
