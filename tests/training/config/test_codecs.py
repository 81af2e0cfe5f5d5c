from typing import Any

import pytest

from scalebook.training.config.codecs import problems
from scalebook.training.config.description import Description


def found(description: Description, codec: Any, **trainer: Any) -> list[tuple[str, str, str]]:
    strategy = {"class_path": "scalebook.training.strategies.DDP", "init_args": {"codec": codec}}
    config = {"model": "PixelCNN", "data": "Digits", "trainer": {"devices": 2, **trainer, "strategy": strategy}}
    return [
        (problem.key, problem.severity, f"{problem.message}. {problem.remedy}")
        for problem in problems(config, description)
    ]


def test_a_codec_of_ddp_that_cannot_be_or_does_nothing(description: Description) -> None:
    key = "trainer.strategy.init_args.codec"
    on_gpu = "is sign, whose frames are made on a CPU. Write bf16, fp16 or fp32, or accelerator: cpu."
    assert found(description, "sign", accelerator="gpu") == [(key, "error", on_gpu)]
    alone = "has no effect: there is only one worker. Use more workers."
    assert found(description, "sign", devices=1) == [(key, "warning", alone)]


@pytest.mark.parametrize("codec", ["bf16", "fp32", "unknown"])
def test_others_are_fine_or_said_elsewhere(codec: str, description: Description) -> None:
    assert found(description, codec, accelerator="gpu") == []
