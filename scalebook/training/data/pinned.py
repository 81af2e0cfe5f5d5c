"""Whether batches lie in page-locked memory, from which they are copied to a GPU while it computes."""

from lightning.pytorch import LightningDataModule


def pins(module: LightningDataModule) -> bool:
    """True where the module's Trainer trains on a GPU; without a Trainer nobody knows."""
    return module.trainer is not None and module.trainer.strategy.root_device.type == "cuda"
