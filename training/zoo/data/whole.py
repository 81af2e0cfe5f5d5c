"""Data sets in memory that draw whole batches, and all of one part as a single batch."""

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader, Dataset
from typing_extensions import override

from scalebook.training.base import extras
from scalebook.training.zoo.shuffle import EpochShuffle


def pins(module: LightningDataModule) -> bool:
    """True if the module's Trainer trains on a GPU; False without a Trainer."""
    return module.trainer is not None and module.trainer.strategy.root_device.type == "cuda"


Drawn = TypeVar("Drawn")
DrawnOut = TypeVar("DrawnOut", covariant=True)


class Samples(Protocol[DrawnOut]):
    """In memory. `__getitems__` draws a whole batch."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Any: ...
    def __getitems__(self, indices: list[int]) -> DrawnOut: ...


class WholeDataset(Dataset[Drawn]):
    """A data set of one element, all samples: with `batch_size=None` a loader of one batch, in every worker."""

    def __init__(self, samples: Samples[Drawn]) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Drawn:
        return self._samples.__getitems__(list(range(len(self._samples))))


class ValidatedAtOnce(LightningDataModule, Generic[Drawn]):
    """Loaders over two parts, "train" and "val", which `setup` puts into `_parts`.

    Every worker validates with all of its part as one batch: a rank or score is of all samples, whatever the strategy.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    """Modules that only an extra installs: see `base/extras.py`."""

    def __init__(self, batch_size: int) -> None:
        super().__init__()
        extras.require("data", type(self))
        self.batch_size = batch_size
        self._parts: Mapping[str, Samples[Drawn]] = {}

    @override
    def train_dataloader(self) -> DataLoader[Drawn]:
        samples: Any = self._parts["train"]  # a Dataset as DataLoader annotates it, and a sequence for the shuffle
        return DataLoader(
            samples, self.batch_size, sampler=EpochShuffle(samples), collate_fn=as_it_is, pin_memory=pins(self)
        )

    @override
    def val_dataloader(self) -> DataLoader[Drawn]:
        return DataLoader(WholeDataset(self._parts["val"]), batch_size=None, pin_memory=pins(self))

    @override
    def predict_dataloader(self) -> DataLoader[Drawn]:
        """The validation samples."""
        return self.val_dataloader()


def as_it_is(batch: Any) -> Any:
    """A `collate_fn` for a data set that draws whole batches."""
    return batch
