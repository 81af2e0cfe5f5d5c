import warnings
from collections.abc import Iterator

import pytest
import torch

OF_LIGHTNING = (
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # it uses what torch has renamed
    r".*does not have many workers.*",  # the data of these tests is in memory
    r".*exists and is not empty",  # a resumed run writes beside the first one's checkpoints
)


@pytest.fixture(autouse=True)
def _quiet_lightning_and_one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        for message in OF_LIGHTNING:
            warnings.filterwarnings("ignore", message=message)
        yield
    torch.set_num_threads(threads)
