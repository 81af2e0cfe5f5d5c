"""A DQN whose data is a stream: it plays while it trains."""

import random
from collections import deque
from collections.abc import Iterator

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.nn.functional import smooth_l1_loss
from torch.utils.data import DataLoader, IterableDataset

from tests.clients.case import Setting
from tests.clients.fitting import make_trainer, seeded

LENGTH = 6
"""Cells of a corridor, with a reward at its right end; left or right."""
DISCOUNT = 0.9
Played = tuple[int, int, float, int, bool]


class Corridor(IterableDataset[Played]):
    """Plays by the network that trains, and yields what it remembers."""

    def __init__(self, model: "Dqn", samples: int) -> None:
        self._model, self._samples = model, samples
        self._memory = deque[Played](maxlen=500)

    def __iter__(self) -> Iterator[Played]:
        place = 0
        for _ in range(self._samples):
            action = random.randrange(2) if random.random() < 0.5 else self._model.action(place)
            after = max(0, place + (1 if action else -1))
            done = after == LENGTH - 1
            self._memory.append((place, action, float(done), after, done))
            place = 0 if done else after
            yield random.choice(self._memory)


class Dqn(LightningModule):
    """Mnih et al. 2015, on states one-hot."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(LENGTH, 2)
        self.target = torch.nn.Linear(LENGTH, 2)
        self.target.load_state_dict(self.net.state_dict())
        self.target.requires_grad_(False)

    def values(self, places: Tensor, net: torch.nn.Module) -> Tensor:
        found: Tensor = net(torch.nn.functional.one_hot(places, LENGTH).float())
        return found

    @torch.no_grad()
    def action(self, place: int) -> int:
        return int(self.values(torch.tensor(place), self.net).argmax())

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        places, actions, rewards, after, done = batch
        with torch.no_grad():
            best = self.values(after, self.target).max(1).values
            wanted = rewards.float() + DISCOUNT * best * ~done
        if batch_idx % 20 == 0:
            self.target.load_state_dict(self.net.state_dict())
        return smooth_l1_loss(self.values(places, self.net).gather(1, actions[:, None])[:, 0], wanted)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.net.parameters(), lr=2e-2)


def dqn(setting: Setting) -> dict[str, float]:
    """`return_lost`: how far the value of the first cell is from the best that can be had, 0.9 to the power of 4."""
    model = seeded(Dqn)
    make_trainer(setting, max_epochs=1).fit(model, DataLoader(Corridor(model, 16 * 400), batch_size=16))
    with torch.no_grad():
        value = model.values(torch.tensor(0), model.net).max().item()
    return {"return_lost": abs(DISCOUNT ** (LENGTH - 2) - value)}
