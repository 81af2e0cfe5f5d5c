"""Layers that are measured in steps of training: which they are, their bytes, and that they share a gradient's time."""

from time import perf_counter, sleep
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from typing_extensions import override

from scalebook.training.pricing.layer_times import OUTSIDE, LayerTimes, units
from scalebook.training.pricing.layers import Layer


def measured(model: nn.Module, batch: Tensor, steps: int = 3) -> list[Layer]:
    times, seconds = LayerTimes(model), 0.0
    for _ in range(steps):
        began = perf_counter()
        times.begin_step()
        model(batch).square().mean().backward()
        times.end_step()
        seconds = perf_counter() - began
    weights = float(sum(parameter.nbytes for parameter in model.parameters()))
    return times.layers(seconds, weights)


class _Sleep(torch.autograd.Function):
    @staticmethod
    @override
    def forward(ctx: Any, batch: Tensor, seconds: float) -> Tensor:
        ctx.seconds = seconds
        sleep(seconds)
        return batch.clone()

    @staticmethod
    @override
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        sleep(2 * ctx.seconds)
        return gradients[0], None


class Sleeping(nn.Module):
    """Takes so long forward, and twice as long backward."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    @override
    def forward(self, batch: Tensor) -> Tensor:
        result: Tensor = _Sleep.apply(batch, self.seconds)  # type: ignore[no-untyped-call]  # torch's
        return result


def test_two_matrices_are_a_pair_and_others_columns() -> None:
    model = nn.Sequential(
        nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8), nn.LayerNorm(8), nn.Linear(8, 5), nn.LayerNorm(5)
    )
    pair, norm, head, _, outside = measured(model, torch.randn(16, 8))
    assert (pair.name, pair.kind, pair.width, pair.cut) == ("0 to 2", "pair", 8, True)
    assert pair.parameter_bytes == 4 * (8 * 32 + 32 + 32 * 8 + 8)
    assert pair.output_bytes == 4 * 16 * 8
    assert pair.saved_bytes == 4 * 16 * (8 + 32), "its input, and what the activation makes; no parameter"
    assert (norm.kind, head.kind, head.output_bytes) == ("whole", "column", 4 * 16 * 5)
    assert (outside.name, outside.parameter_bytes, outside.cut) == (OUTSIDE, 0.0, False)


def test_layers_and_what_is_outside_share_a_gradient_s_seconds() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4), Sleeping(0.01), Sleeping(0.03)])
            self.scale = nn.Parameter(torch.ones(4))

        @override
        def forward(self, batch: Tensor) -> Tensor:
            sleep(0.02)
            for layer in self.layers:
                batch = layer(batch)
            return batch * self.scale

    _, short, long, outside = measured(Model(), torch.randn(2, 4), steps=1)
    assert short.forward_s >= 0.01
    assert short.backward_s >= 0.02
    assert long.forward_s >= 0.03
    assert long.backward_s >= 0.06
    assert outside.seconds >= 0.02
    assert outside.parameter_bytes == 16


def test_a_stage_begins_only_with_a_child_of_a_list() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(8, 16)
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)
            self.head = nn.Linear(16, 3)

        @override
        def forward(self, batch: Tensor) -> Tensor:
            result: Tensor = self.head(self.encoder(self.embed(batch)))
            return result

    layers = measured(Model(), torch.randn(4, 5, 8))
    cuts = [layer.name for layer in layers if layer.cut]
    assert cuts == ["embed", "encoder.layers.0.self_attn", "encoder.layers.1.self_attn", "head"]
    pairs = [layer.name for layer in layers if layer.kind == "pair"]
    assert pairs == [f"encoder.layers.{number}.linear1 to encoder.layers.{number}.linear2" for number in (0, 1)]
    assert [unit.block for unit in units(nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.ReLU(), nn.Tanh())))] == [
        "0", "1.0", "1.1",
    ]  # fmt: skip
    plain = nn.TransformerEncoderLayer(16, 2, 32)
    assert {unit.block for unit in units(plain)} == {"the model"}


def test_what_is_called_again_later_keeps_its_layers_together() -> None:
    """A table that encoder and decoder have in common, and two passes over the same list, as PixelCNN's."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Linear(4, 4)
            self.encoder, self.decoder = (nn.Sequential(nn.Tanh(), nn.LayerNorm(4)) for _ in range(2))
            self.both = nn.ModuleList(nn.ModuleDict({"a": nn.LayerNorm(4), "b": nn.LayerNorm(4)}) for _ in range(2))
            self.head = nn.Sequential(nn.Linear(4, 2))

        @override
        def forward(self, batch: Tensor) -> Tensor:
            batch = self.decoder(self.table(self.encoder(self.table(batch))))
            for name in ("a", "b"):
                for each in self.both:
                    assert isinstance(each, nn.ModuleDict)
                    batch = each[name](batch)
            result: Tensor = self.head(batch)
            return result

    layers = measured(Model(), torch.randn(3, 4))
    assert [layer.name for layer in layers if layer.cut] == ["table", "decoder.0", "decoder.1", "both.0.a", "head.0"]
    assert sum(layer.parameter_bytes for layer in layers) == 4 * (20 + 2 * 8 + 4 * 8 + 10), "the table counts once"


def test_what_hands_on_its_input_has_no_backward_pass_of_its_own() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), Sleeping(0.01), nn.Dropout(0.0))
    *_, slow, dropout, _ = measured(model, torch.randn(2, 4))
    assert slow.backward_s >= 0.01
    assert dropout.backward_s == 0


@pytest.mark.alone
def test_activations_that_are_computed_again_count_once() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Sequential(Sleeping(0.05), nn.LayerNorm(4))

        @override
        def forward(self, batch: Tensor) -> Tensor:
            result: Any = checkpoint(self.second, self.first(batch), use_reentrant=False)
            return result  # type: ignore[no-any-return]  # torch's checkpoint says nothing of it

    layers = {layer.name: layer for layer in measured(Model(), torch.randn(2, 4))}
    assert 0.04 < layers["second.0"].forward_s < 0.09


class _PerSample(nn.Module):
    """Takes so long for each sample."""

    @override
    def forward(self, batch: Tensor) -> Tensor:
        sleep(0.005 * len(batch))
        return batch * 1.0


@pytest.mark.alone
@pytest.mark.parametrize(("module", "factors"), [(Sleeping(0.02), (2, 4, 8)), (_PerSample(), (1, 1, 1))])
def test_what_a_part_of_a_batch_takes_is_measured(module: nn.Module, factors: tuple[float, ...]) -> None:
    """A pass that reads all parameters takes as long for few samples; eight samples make no sixteen microbatches."""
    model = nn.Sequential(module, nn.Linear(4, 4))
    times = LayerTimes(model)
    times.begin_step()
    model(torch.randn(8, 4)).sum().backward()
    times.end_step()
    before = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    found = times.microbatch_factors()
    assert list(found) == ["2", "4", "8"]
    assert list(found.values()) == pytest.approx(factors, rel=0.4)
    after = [parameter.grad for parameter in model.parameters()]
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True) if new is not None), (
        "none is added"
    )


def test_a_batch_that_no_number_divides_is_not_cut() -> None:
    times = LayerTimes(model := nn.Sequential(nn.Linear(4, 4)))
    assert times.microbatch_factors() == {}
    times.begin_step()
    model(torch.randn(7, 4)).sum().backward()
    times.end_step()
    assert times.microbatch_factors() == {}


def test_nothing_measured_has_no_layers() -> None:
    times = LayerTimes(nn.Linear(2, 2))
    times.end_step()
    assert times.layers(1.0, 24.0) == []
