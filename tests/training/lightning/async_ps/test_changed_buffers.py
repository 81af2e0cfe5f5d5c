"""Which buffers of a model training changes."""

import torch
from torch import Tensor, nn

from scalebook.training.lightning.buffer_rows import Changes, buffers_of


class Several(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.constant: Tensor
        self.added: Tensor
        self.data_written: Tensor
        self.replaced: Tensor
        for name in ("constant", "added", "data_written", "replaced"):
            self.register_buffer(name, torch.zeros(2))
        self.again = self.replaced
        self.norm = nn.BatchNorm1d(1)
        self.register_buffer("none", None)


def test_those_that_are_written_into_replaced_or_written_through_data() -> None:
    model = Several()
    buffers = buffers_of(model)
    assert [one.name for one in buffers] == [
        "norm.running_mean", "norm.running_var", "constant", "added", "data_written", "replaced",
        "norm.num_batches_tracked",
    ]  # fmt: skip
    changes = Changes(buffers)
    changes.begin_watching()
    assert changes.pop_changed() == []
    with torch.no_grad():
        model.added += 0
    model.replaced = model.replaced + 1
    assert [buffers[number].name for number in changes.pop_changed()] == ["added", "replaced"]
    model.data_written.data += 1
    assert changes.pop_changed() == []
    assert [buffers[number].name for number in changes.pop_changed()] == ["data_written"], (
        "the fourth look compares values"
    )
    model.added += 1
    assert [changes.pop_changed() for _ in range(4)] == [[]] * 4, "each is said once"
    model.constant = model.constant.clone()  # the same values, as often written into
    assert [buffers[number].name for number in changes.pop_changed()] == ["constant"]


def test_a_validation_may_have_buffers_of_its_own() -> None:
    model = Several()
    buffers = buffers_of(model)
    changes = Changes(buffers)
    changes.begin_watching()
    model.added += 1
    changes.begin_watching()
    assert [changes.pop_changed() for _ in range(4)] == [[]] * 4
    model.added += 1
    assert [buffers[number].name for number in changes.pop_changed()] == ["added"]
