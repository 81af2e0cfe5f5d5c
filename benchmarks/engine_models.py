"""What `benchmarks.engine` trains through Lightning: its perceptron, and small models of the kinds that people have."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch import Generator, Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.utils.data import DataLoader, Dataset, TensorDataset

from benchmarks.engine_task import BATCH, LEARNING_RATE, SAMPLES, perceptron

WORDS: Final = 2000
SIDE: Final = 32


class Data(LightningDataModule, ABC):
    """Random samples in memory; each worker has `samples` of its own."""

    samples: int
    batch: int
    collate: Callable[[Any], Any] | None = None

    def __init__(self, workers: int = 1) -> None:
        super().__init__()
        self.workers = workers

    @abstractmethod
    def made(self, count: int, chance: Generator) -> Any:
        """A data set of so many samples."""

    def train_dataloader(self) -> Any:
        made = self.made(self.workers * self.samples, Generator().manual_seed(0))
        return DataLoader(made, self.batch, shuffle=True, collate_fn=self.collate)


class Rows(Dataset[tuple[Tensor, Tensor]]):
    """Rows that the loader fetches a batch at a time, so that it costs little."""

    def __init__(self, inputs: Tensor, labels: Tensor) -> None:
        self.inputs, self.labels = inputs, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, rows: list[int]) -> tuple[Tensor, Tensor]:
        index = torch.tensor(rows)
        return self.inputs.index_select(0, index), self.labels.index_select(0, index)


class Vectors(Data):
    """Inputs of the perceptron."""

    samples, batch = SAMPLES, BATCH
    collate = staticmethod(lambda batch: batch)

    def made(self, count: int, chance: Generator) -> Rows:
        return Rows(torch.rand(count, 784, generator=chance), torch.randint(10, (count,), generator=chance))


class Perceptron(LightningModule):
    """784-512-512-10, 669,706 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.net = perceptron()

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> Optimizer:
        return SGD(self.parameters(), lr=LEARNING_RATE)


def padded(pairs: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Texts [batch, longest], their lengths and labels."""
    texts, labels = zip(*pairs, strict=True)
    lengths = torch.tensor([len(text) for text in texts])
    return pad_sequence(list(texts), batch_first=True), lengths, torch.tensor(labels)


class Texts(Data):
    """Texts of 5 to 40 words."""

    samples, batch = 2048, 32
    collate = staticmethod(padded)

    def made(self, count: int, chance: Generator) -> list[tuple[Tensor, int]]:
        lengths = torch.randint(5, 41, (count,), generator=chance).tolist()
        return [(torch.randint(WORDS, (length,), generator=chance), length % 2) for length in lengths]


class TextNet(LightningModule):
    """A GRU over packed texts, 203,000 parameters, most of them in the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.gru = nn.Embedding(WORDS, 64), nn.GRU(64, 128, batch_first=True)
        self.head = nn.Linear(128, 2)

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor], batch_idx: int) -> Tensor:
        texts, lengths, labels = batch
        packed = pack_padded_sequence(self.words(texts), lengths, batch_first=True, enforce_sorted=False)
        loss = cross_entropy(self.head(self.gru(packed)[1][0]), labels)
        self.log("train_loss", loss, batch_size=len(labels))
        return loss

    def configure_optimizers(self) -> Optimizer:
        return Adam(self.parameters(), lr=1e-3)


class Discs(Data):
    """Noisy images of half planes, and their masks."""

    samples, batch = 512, 8

    def made(self, count: int, chance: Generator) -> TensorDataset:
        edges = SIDE * torch.rand(count, 1, 1, 1, generator=chance)
        masks = (torch.arange(SIDE) < edges).float().expand(count, 1, SIDE, SIDE).contiguous()
        return TensorDataset(masks + torch.randn(masks.shape, generator=chance), masks)


class UNet(LightningModule):
    """A U-Net of three levels with batch norm, 118,000 parameters."""

    def __init__(self) -> None:
        super().__init__()

        def block(inputs: int, outputs: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
                nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            )  # fmt: skip

        self.down, self.middle, self.low = block(1, 16), block(16, 32), block(32, 64)
        self.rise, self.up, self.head = block(96, 32), block(48, 16), nn.Conv2d(16, 1, 1)
        self.pool, self.wider = nn.MaxPool2d(2), nn.Upsample(scale_factor=2)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        high = self.down(batch[0])
        middle = self.middle(self.pool(high))
        risen = self.rise(torch.cat([middle, self.wider(self.low(self.pool(middle)))], 1))
        mask = self.head(self.up(torch.cat([high, self.wider(risen)], 1)))
        loss = binary_cross_entropy_with_logits(mask, batch[1])
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> Optimizer:
        return AdamW(self.parameters(), lr=1e-3)


class Curve(Data):
    """A noisy function of eight numbers."""

    samples, batch = 16384, 32

    def made(self, count: int, chance: Generator) -> TensorDataset:
        inputs = torch.rand(count, 8, generator=chance)
        return TensorDataset(inputs, inputs.sin().sum(1, True) + 0.1 * torch.randn(count, 1, generator=chance))


class Regressor(LightningModule):
    """8-32-32-1, 1,377 parameters in two groups: a step is mostly Lightning's."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.head = nn.Linear(32, 1)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        loss = mse_loss(self.head(self.body(batch[0])), batch[1])
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> Optimizer:
        groups = [{"params": self.body.parameters(), "lr": 1e-2}, {"params": self.head.parameters(), "lr": 1e-3}]
        return SGD(groups, momentum=0.9)


class Task(NamedTuple):
    """A model and its data. `steps_per_s`, roughly: steps are counted, not timed, since ranks must agree on the end."""

    model: type[LightningModule]
    data: type[Data]
    steps_per_s: int

    def config(self, workers: int) -> dict[str, Any]:
        """The keys of a config that trains it by so many workers, without the Trainer's."""
        data = {"class_path": class_path(self.data), "init_args": {"workers": workers}}
        return {"model": {"class_path": class_path(self.model)}, "data": data}


def class_path(of: type) -> str:
    """Of a class, as configs have it."""
    return f"{of.__module__}.{of.__qualname__}"


PERCEPTRON: Final = Task(Perceptron, Vectors, 150)
TASKS: Final = {
    "GRU": Task(TextNet, Texts, 80),
    "U-Net": Task(UNet, Discs, 55),
    "tiny": Task(Regressor, Curve, 800),
}
