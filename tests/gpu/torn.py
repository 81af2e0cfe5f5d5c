"""Point 1: parameters whose copies last as long as what computes with them."""

from pathlib import Path
from typing import Any, Final

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.nn import Parameter, ParameterList

from scalebook.training.lightning import AsyncPS
from tests.gpu.models import RATE, Dyadic, integers, make_trainer, numbers
from tests.gpu.running import Check, Machine

MB: Final = {"cuda": 256, "cpu": 4}
PARTS: Final = 4
CYCLES: Final = 40_000_000  # 20 ms or so, between the forward pass and the backward pass
WAYS: Final[dict[str, dict[str, Any]]] = {
    "inline": {},
    "inline, 4 shards": {"shards": 4},
    "servers, 4 shards": {"host": "process", "shards": 4},
}


class Wide(Dyadic):
    """All numbers of a gradient are the sum of the batch, so all of a parameter are the same at any time."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        size = MB[device] * 2**20 // 4 // PARTS
        self.weights = ParameterList(Parameter(torch.zeros(size)) for _ in range(PARTS))

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        whole = batch[0].sum()
        loss = torch.stack([weight.sum() * whole for weight in self.weights]).sum()
        if self.wanted == "cuda":
            torch.cuda._sleep(CYCLES)  # type: ignore[no-untyped-call]
        return loss

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        assert not bool(torn(self)), "torn while it is validated"


def torn(model: Wide) -> Tensor:
    """How many parameters have more than one number, on the device: nothing is waited for."""
    ends = [torch.aminmax(weight.detach()) for weight in model.weights]
    return torch.stack([low != high for low, high in ends]).sum()


class Looks(Callback):
    """At the parameters as each batch begins, without waiting for the pull; says at the end what it saw."""

    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        assert isinstance(pl_module, Wide)
        self.seen.append(torn(pl_module))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        found = [int(number) for number in self.seen]
        assert found, "it has not looked"
        assert not any(found), f"{sum(found)} parameters were torn in {len(found)} looks"


def big_ones_are_never_torn(machine: Machine, folder: Path) -> str:
    """Four workers, inline and with servers: `min == max` after each pull and in each validation; sums are exact."""
    expected = -RATE * float(integers().sum())
    for way, arguments in WAYS.items():
        model = Wide(machine.device)
        trainer = make_trainer(
            machine, folder, AsyncPS(workers=4, **arguments), callbacks=[Looks()], val_check_interval=3
        )
        trainer.fit(model, numbers(), numbers())
        found = {float(end) for weight in model.weights for end in torch.aminmax(weight.detach())}
        assert found == {expected}, f"{way}: {sorted(found)}, not {expected}"
    return f"{MB[machine.device]} MB, {len(WAYS)} ways, four workers: whole at each look, sums to the last bit"


CHECKS: Final = [Check("big and torn", big_ones_are_never_torn, point=1)]
