"""The codecs that a config names, and what is wrong with them beyond their bounds."""

from collections.abc import Mapping
from typing import Any, Final

from scalebook.training.config.classes import mapping, named
from scalebook.training.config.description import ClassInfo, Description
from scalebook.training.config.workload import choice, workload
from scalebook.training.errors import Problem
from scalebook.training.ps.policy.codecs import CODECS, in_halves
from scalebook.training.ps.policy.contradictions import ARGUMENTS
from scalebook.training.ps.policy.frames import Codec

CPU_ALONE: Final = "Write bf16, fp16 or fp32, or accelerator: cpu."


def codec_of(name: str, args: Mapping[str, Any], info: ClassInfo | None) -> Codec | None:
    """The codec that a strategy's argument `name` asks for; None for none, one out of bounds, or one of a user's."""
    chosen = choice(name, args, info)
    kind = CODECS.get(chosen.word) if chosen else None
    if chosen is None or kind is None:
        return None
    try:
        return kind(**chosen.settings())
    except (TypeError, ValueError):  # said by those who check each argument
        return None


def problems(config: Mapping[str, Any], description: Description) -> list[Problem]:
    """Errors and warnings about the codec of DDP."""
    trainer = mapping(config.get("trainer"))
    strategy = named(trainer.get("strategy"))
    info = strategy.info("strategies", description)
    if info is None or info.name != "ddp":
        return []
    codec = codec_of("codec", mapping(strategy.args), info)
    if codec is None or not codec.codes:
        return []
    key = f"{ARGUMENTS}.codec"
    if trainer.get("accelerator") in ("gpu", "cuda") and not in_halves(codec):
        return [Problem(key, f"is {codec.name}, whose frames are made on a CPU", CPU_ALONE)]
    if workload(config, description).workers == 1:
        return [Problem(key, "has no effect: there is only one worker", "Use more workers.", "warning")]
    return []
