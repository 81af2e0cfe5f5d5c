"""Data that are no TensorDataset: archives, streams, tables, loaders with a state, and several loaders at once."""

from pathlib import Path
from typing import Any

import datasets
import webdataset
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import DataLoader, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from tests.clients.case import Setting
from tests.clients.cases.data import BATCH, clusters, held_out, in_order
from tests.clients.fitting import Simple, parts, perceptron, trained


class Classifier(Simple):
    """Of inputs and labels."""

    def __init__(self) -> None:
        super().__init__()
        self.net = perceptron()

    def loss(self, batch: Any) -> Tensor:
        inputs, labels = batch.values() if isinstance(batch, dict) else batch
        return cross_entropy(self.net(inputs), labels)


def _archives(folder: Path) -> list[str]:
    """Each with the samples of one worker's batch."""
    batches = DataLoader(TensorDataset(*clusters(240)), BATCH)
    for archive, (inputs, labels) in enumerate(batches):
        with webdataset.TarWriter(str(folder / f"{archive:03}.tar")) as written:
            for number, (one, label) in enumerate(zip(inputs, labels, strict=True)):
                written.write({"__key__": f"{archive}-{number}", "input.npy": one.numpy(), "label.cls": int(label)})
    return sorted(str(path) for path in folder.glob("*.tar"))


def web_archives(setting: Setting) -> dict[str, float]:
    """The data divide themselves: each worker reads every other archive."""
    stream = webdataset.WebDataset(
        _archives(setting.folder), nodesplitter=webdataset.split_by_node, shardshuffle=False
    ).decode()
    samples = stream.to_tuple("input.npy", "label.cls")
    training = DataLoader(samples, batch_size=2 * BATCH // parts(setting))
    return trained(setting, Classifier, training, held_out())[1]


def hugging_face_stream(setting: Setting) -> dict[str, float]:
    """No worker divides it: the strategy does."""
    inputs, labels = clusters(240)
    table = datasets.Dataset.from_dict({"inputs": inputs.numpy(), "labels": labels.numpy()}).with_format("torch")
    training = DataLoader(table.to_iterable_dataset(), batch_size=2 * BATCH // parts(setting))
    return trained(setting, Classifier, training, held_out())[1]


def stateful_loader(setting: Setting) -> dict[str, float]:
    training = StatefulDataLoader(TensorDataset(*clusters(240)), batch_size=2 * BATCH // parts(setting))
    return trained(setting, Classifier, training, held_out())[1]


class OfKeys(Simple):
    """Modules that read and write keys of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.net = TensorDictModule(perceptron(), in_keys=["inputs"], out_keys=["logits"])

    def loss(self, batch: TensorDict) -> Tensor:
        return cross_entropy(self.net(batch)["logits"], batch["labels"])


def _keyed(samples: int, batch: int, seed: int = 0) -> DataLoader[Any]:
    inputs, labels = clusters(samples, seed=seed)
    table: Any = TensorDict({"inputs": inputs, "labels": labels}, batch_size=[samples])
    return DataLoader(table, batch_size=batch, collate_fn=lambda batch: batch)


def tensor_dicts(setting: Setting) -> dict[str, float]:
    return trained(setting, OfKeys, _keyed(240, 2 * BATCH // parts(setting)), _keyed(64, BATCH, 1))[1]


class SemiSupervised(Classifier):
    """Unlabelled samples are to be given the same answer with and without a shift."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        (unlabelled,) = batch["unlabelled"]
        return self.loss(batch["labelled"]) + 0.1 * mse_loss(self.net(unlabelled + 0.1), self.net(unlabelled))


def semi_supervised(setting: Setting) -> dict[str, float]:
    """The labelled samples are repeated until the others end."""
    labelled, (others, _) = clusters(48), clusters(240, seed=5)
    training = {"labelled": in_order(setting, *labelled), "unlabelled": in_order(setting, others)}
    return trained(setting, SemiSupervised, training, held_out())[1]
