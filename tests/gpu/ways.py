"""Points 6 and 7: virtual workers, and the ways to train that have code of their own between worker and shard."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Dropout
from torch.nn.functional import cross_entropy, dropout
from torch.optim import SGD, Adam, Optimizer
from torch.utils.data import DataLoader, TensorDataset

from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.rules.codecs import Bf16, Int8
from scalebook.training.engine.rules.local_steps import DiLoCo, Elastic, LocalSGD
from scalebook.training.lightning import AsyncPS
from tests.gpu.models import (
    BATCH,
    RATE,
    SAMPLES,
    Dyadic,
    Pictures,
    exact_weights,
    flat,
    make_trainer,
    numbers,
    pictures,
)
from tests.gpu.running import Check, Machine

WORKERS: Final = 4
EPOCHS: Final = 2
LEARNT: Final = 0.7
"""A validation loss, by guessing 1.39."""
CLIP: Final = 2.0


class Chancy(Pictures):
    """With dropout; notes what is drawn in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.net.append(Dropout(0.1))
        self.drawn: list[Tensor] = []

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        with torch.no_grad():
            self.drawn.append(dropout(torch.ones(256, device=self.device)).cpu())
        return super().training_step(batch, batch_idx)

    def on_train_end(self) -> None:
        first = {tuple(one.tolist()) for one in self.drawn[:WORKERS]}
        assert len(first) == WORKERS, f"of the first draws of {WORKERS} workers {len(first)} differ"


def virtual_runs_repeat(machine: Machine, folder: Path) -> str:
    """Virtual workers with dropout and batch normalisation: twice the same bits, and each worker draws its own."""
    states = []
    for _ in range(2):
        model = seeded(Chancy)
        strategy = AsyncPS(workers=WORKERS, host="virtual", clock=ClockSettings(gradient_s=0.05))
        make_trainer(machine, folder, strategy, deterministic=True, limit_train_batches=8).fit(model, pictures())
        states.append({name: value.cpu() for name, value in model.state_dict().items()})
    one, other = states
    differ = [name for name in one if not torch.equal(one[name], other[name])]
    assert not differ, f"two runs differ in {', '.join(differ)}"
    assert not torch.equal(one["net.0.weight"], seeded(Chancy).state_dict()["net.0.weight"]), "it has not trained"
    return f"{WORKERS} workers, {len(one)} tensors to the last bit"


def seeded(kind: Callable[[], Pictures]) -> Pictures:
    torch.manual_seed(5)
    return kind()


# --- point 7 ---------------------------------------------------------------------------------------------------------


class Fused(Pictures):
    """With torch's fused optimizer."""

    def configure_optimizers(self) -> Optimizer:
        return Adam(self.parameters(), lr=self.lr, fused=True)


class TwoByHand(Dyadic):
    """Two optimizers, stepped by the model itself."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.automatic_optimization = False

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        optimizers: list[Any] = self.optimizers()  # type: ignore[assignment]  # a list where there are two
        for optimizer in optimizers:
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in optimizers:
            optimizer.step()
        return loss.detach()

    def configure_optimizers(self) -> list[Optimizer]:  # type: ignore[override]
        weights = list(self.weights)
        return [SGD(weights[:1], lr=RATE), SGD(weights[1:], lr=RATE)]


LEARN: Final[dict[str, tuple[dict[str, Any], dict[str, Any], Callable[[], Pictures]]]] = {
    "bf16 up": ({"push_codec": Bf16()}, {}, Pictures),
    "int8 up, bf16 down": ({"push_codec": Int8(), "pull_codec": Bf16()}, {}, Pictures),
    "bf16 up, servers": ({"push_codec": Bf16(), "host": "process", "shards": 2}, {}, Pictures),
    "local SGD": ({"local": LocalSGD(every=4)}, {}, Pictures),
    "DiLoCo": ({"rule": "sync", "local": DiLoCo(every=4)}, {}, Pictures),
    "elastic": ({"local": Elastic(every=2)}, {}, Pictures),
    "clipped by norm": ({}, {"gradient_clip_val": 1.0}, Pictures),
    "fused": ({}, {}, Fused),
    "fused, float16": ({}, {"precision": "16-mixed"}, Fused),
}
"""Arguments of AsyncPS, of the Trainer, and the model."""


def learns_in_each_way(machine: Machine, folder: Path) -> str:
    """Two workers; the validation loss says that it has learnt."""
    losses = {}
    for way, (arguments, settings, kind) in LEARN.items():
        if machine.device == "cpu" and "float16" in way:  # as Lightning has it, float16 is CUDA's
            continue
        model = seeded(kind)
        trainer = make_trainer(machine, folder, AsyncPS(workers=2, **arguments), epochs=EPOCHS, **settings)
        trainer.fit(model, pictures())
        losses[way] = loss_of(model)
        assert losses[way] < LEARNT, f"{way}: the loss is {losses[way]:.2f}, by guessing 1.39"
    return f"{len(losses)} ways, losses from {min(losses.values()):.3f} to {max(losses.values()):.3f}"


def loss_of(model: Pictures) -> float:
    """Over all pictures, with batch statistics, on the CPU: what came back from the workers is looked at."""
    model.cpu().train()
    with torch.no_grad():
        losses = [float(cross_entropy(model.net(images), labels)) for images, labels in pictures()]
    return sum(losses) / len(losses)


def exact_in_each_way(machine: Machine, folder: Path) -> str:
    """Clipped by value, and two optimizers by hand: what is known to the last bit."""
    model = Dyadic(machine.device)
    threes = DataLoader(TensorDataset(torch.full((SAMPLES, 8), 3.0)), batch_size=BATCH)
    settings: dict[str, Any] = {"gradient_clip_val": CLIP, "gradient_clip_algorithm": "value"}
    make_trainer(machine, folder, AsyncPS(workers=2), **settings).fit(model, threes)
    found, expected = sorted(set(flat(model).tolist())), [-RATE * CLIP * SAMPLES / BATCH]
    assert found == expected, f"clipped by value: {found}, not {expected}"
    by_hand = TwoByHand(machine.device)
    make_trainer(machine, folder, AsyncPS(workers=2)).fit(by_hand, numbers())
    assert torch.equal(flat(by_hand), exact_weights()), "two optimizers by hand"
    return "clipped by value, two optimizers by hand: to the last bit"


CHECKS: Final = [
    Check("virtual: twice the same bits", virtual_runs_repeat, point=6),
    Check("ways: each learns", learns_in_each_way, 120.0, point=7),
    Check("ways: sums are exact", exact_in_each_way, point=7),
]
