"""The codecs that a config names, and what is wrong with them beyond their bounds."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from scalebook.training.base.errors import Problem
from scalebook.training.engine.rules.codecs import CODECS, Codec, in_halves
from scalebook.training.engine.rules.contradictions import ARGUMENTS
from scalebook.training.experiments.classes import ChosenClass, mapping, read_class
from scalebook.training.experiments.description import ClassInfo, Description
from scalebook.training.experiments.model_parameters import cached_parameters
from scalebook.training.experiments.workload import choice, workload

CPU_ALONE: Final = "Write bf16, fp16 or fp32, or accelerator: cpu."
DIRECTIONS: Final = ("push_codec", "pull_codec", "codec")
"""Arguments of strategies that name a codec; `codec` is DDP's."""


def codec_of(name: str, args: Mapping[str, Any], info: ClassInfo | None) -> Codec | None:
    """The codec that a strategy's argument `name` asks for; None for none, one out of bounds, or one of a user's."""
    chosen = choice(name, args, info)
    return None if chosen is None else codec_as(chosen)


def codec_as(chosen: ChosenClass) -> Codec | None:
    """The codec with its settings; None as for `codec_of`."""
    kind = CODECS.get(chosen.word)
    if kind is None:
        return None
    try:
        return kind(**chosen.settings())
    except (TypeError, ValueError):  # said by those who check each argument
        return None


def codecs_of(config: Mapping[str, Any], description: Description) -> dict[str, Codec]:
    """The codecs of a config, by the strategy's argument that names them."""
    strategy = read_class(mapping(config.get("trainer")).get("strategy"))
    info = strategy.info("strategies", description)
    names = [field.name for field in info.fields if field.name in DIRECTIONS] if info else []
    codecs = {name: codec_of(name, mapping(strategy.args), info) for name in names}
    return {name: codec for name, codec in codecs.items() if codec is not None}


def problems(config: Mapping[str, Any], description: Description) -> list[Problem]:
    """Errors and warnings: what the model's shapes, where they are known, and DDP forbid."""
    findings = []
    for name, codec in codecs_of(config, description).items():
        if codec.codes:
            is_ddp = name == "codec" and workload(config, description).strategy == "ddp"
            own = _of_ddp(codec, config, description) if is_ddp else _without_effect(name, codec)
            findings += own or _of_model(name, codec, config, description)
    return findings


def _of_model(name: str, codec: Codec, config: Mapping[str, Any], description: Description) -> list[Problem]:
    """What the engine refuses when it starts, said before."""
    key, model = f"{ARGUMENTS}.{name}", cached_parameters(config, description)
    if model is None or not model.parameters:
        return []
    whole = [parameter for parameter in model.parameters if not parameter.dtype.startswith(("float", "bfloat"))]
    if whole and name != "codec":
        why = f"is {codec.name}, and {whole[0].name} is of {whole[0].dtype}, which no codec carries"
        return [Problem(key, why, "Write fp32, or make it a buffer of the model.")]
    if any(parameter.sparse for parameter in model.parameters) and name != "codec":
        return []  # said by `sparse_tables`
    try:
        codec.check(model.shapes, key)
    except ValueError as error:
        problem = Problem.said_by(error)
        return [replace(problem, message=f"of {problem.message}")]
    return []


def _without_effect(name: str, codec: Codec) -> list[Problem]:
    if name != "pull_codec" or not codec.error_feedback or type(codec)().error_feedback:
        return []
    return [
        Problem(
            f"{ARGUMENTS}.{name}.init_args.error_feedback",
            "has no effect on pulls: each pull brings the newest parameters anyway",
            "Remove it.",
            "warning",
        )
    ]


def _of_ddp(codec: Codec, config: Mapping[str, Any], description: Description) -> list[Problem]:
    key, trainer = f"{ARGUMENTS}.codec", mapping(config.get("trainer"))
    if trainer.get("accelerator") in ("gpu", "cuda") and not in_halves(codec):
        return [Problem(key, f"is {codec.name}, which works on a CPU only", CPU_ALONE)]
    if workload(config, description).workers == 1:
        return [Problem(key, "has no effect: there is only one worker", "Use more workers.", "warning")]
    return []
