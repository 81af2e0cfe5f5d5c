"""Whatever writes into parameters does what it does under a plain Trainer, or is refused by name: nothing is lost."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.rules.local_steps import DiLoCo, Downpour, Elastic, LocalSGD
from scalebook.training.lightning import AsyncPS, Peers
from tests.training.lightning.async_ps.contract.models import Plain
from tests.training.lightning.async_ps.small import Batch, fit, trainer, weights

pytestmark = pytest.mark.long

Write = Callable[[LightningModule, list[Tensor]], None]


def by_pointer(model: LightningModule, values: list[Tensor]) -> None:
    for parameter, value in zip(model.parameters(), values, strict=True):
        parameter.data = value


def by_data(model: LightningModule, values: list[Tensor]) -> None:
    for parameter, value in zip(model.parameters(), values, strict=True):
        parameter.data.copy_(value)


def by_load(model: LightningModule, values: list[Tensor]) -> None:
    names = [name for name, _ in model.named_parameters()]
    model.load_state_dict(dict(zip(names, values, strict=True)), strict=False)


WAYS: list[Write] = [by_pointer, by_data, by_load]
ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


class Average(Callback):
    """An exponential moving average, as people write it: swapped in for the validation, and back."""

    def __init__(self, write: Write) -> None:
        self.write, self.average, self.own = write, list[Tensor](), list[Tensor]()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        now = [p.detach().clone() for p in pl_module.parameters()]
        self.average = [a.lerp(b, 0.5) for a, b in zip(self.average or now, now, strict=True)]

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.average:
            self.own = [p.detach().clone() for p in pl_module.parameters()]
            self.write(pl_module, [a.clone() for a in self.average])

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.average:
            for parameter, value in zip(pl_module.parameters(), self.average, strict=True):
                assert torch.equal(parameter, value), "others were validated"

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.average:
            self.write(pl_module, self.own)


class In(Callback):
    """Writes into the weights in one hook: halves of what is there, or the same numbers in every worker."""

    def __init__(self, hook: str, write: Write, halves: bool = True, only: int | None = None) -> None:
        def do(trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
            if only is None or trainer.global_rank == only:
                made = [p.detach() / 2 if halves else torch.full_like(p, 0.25) for p in pl_module.parameters()]
                write(pl_module, made)

        setattr(self, hook, do)


class Saves(Callback):
    """Saves the weights in on_train_end."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero:
            torch.save(pl_module.state_dict(), self.path)


def alone(folder: Path, make: Callable[[], Plain], **settings: Any) -> tuple[Tensor, Tensor, Trainer, Trainer]:
    """The weights of a plain Trainer, and those of one worker."""
    plain = trainer(folder, "auto", **copy.deepcopy(settings))
    expected = fit(plain, make())
    one = trainer(folder, AsyncPS(), **settings)
    return fit(one, make()), expected, one, plain


def two(folder: Path, callback: Callback | None = None, model: Plain | None = None, **arguments: Any) -> Tensor:
    """The weights of two workers that average, which are always the same."""
    callbacks = [] if callback is None else [callback]
    return fit(trainer(folder, AsyncPS(workers=2, rule="sync", **arguments), callbacks=callbacks), model or Plain())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Tensor:
    return two(tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture(scope="module")
def from_a_quarter(tmp_path_factory: pytest.TempPathFactory) -> Tensor:
    """What two workers reach from weights that are all 0.25."""
    started = Plain()
    by_data(started, [torch.full_like(p, 0.25) for p in started.parameters()])
    return two(tmp_path_factory.mktemp("quarter"), model=started)


@ways
def test_an_average_that_is_swapped_in_is_validated_and_not_trained_on(way: Write, tmp_path: Path) -> None:
    found, expected, one, plain = alone(tmp_path, Plain, callbacks=[Average(way)])
    assert torch.equal(found, expected)
    assert one.callback_metrics == plain.callback_metrics


@pytest.mark.thorough
@pytest.mark.each_value
@ways
@pytest.mark.parametrize("host", ["inline", "process"])
def test_so_it_is_with_two_workers(way: Write, host: Any, undisturbed: Tensor, tmp_path: Path) -> None:
    """Nothing of it reaches the training."""
    shards = 1 if host == "inline" else 2
    found = two(tmp_path, Average(way), host=host, shards=shards)
    torch.testing.assert_close(found, undisturbed, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("hook", "way"),
    [("on_fit_start", by_pointer), ("on_train_start", by_data), ("on_train_end", by_load)],
)
def test_one_worker_may_write_before_and_after_training(hook: str, way: Write, tmp_path: Path) -> None:
    found, expected, _, _ = alone(tmp_path, Plain, callbacks=[In(hook, way)])
    assert torch.equal(found, expected)


@pytest.mark.each_value
@ways
@pytest.mark.parametrize("hook", ["on_fit_start", "on_train_start"])
def test_weights_loaded_before_training_are_the_first(
    hook: str, way: Write, from_a_quarter: Tensor, tmp_path: Path
) -> None:
    found = two(tmp_path, In(hook, way, halves=False))
    torch.testing.assert_close(found, from_a_quarter, rtol=1e-5, atol=1e-6)


def test_workers_that_load_different_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"worker 1 wrote into net\.0\.weight, .* with values that differ from worker 0's"
    ):
        two(tmp_path, In("on_train_start", by_data, only=1))


@pytest.mark.each_value
@ways
@pytest.mark.parametrize(
    ("hook", "moment"),
    [
        ("on_train_epoch_start", "between two steps"),
        ("on_train_batch_start", "between two steps"),
        ("on_before_optimizer_step", "in a forward pass"),
        ("on_train_batch_end", "between two steps|after its last step"),
        ("on_validation_end", "since its last validation .* did not restore"),
    ],
)
def test_what_workers_would_lose_is_refused(hook: str, moment: str, way: Write, tmp_path: Path) -> None:
    workers = 1 + WAYS.index(way) % 2
    with pytest.raises(ValueError, match=rf"worker \d wrote into net\.0\.weight, net\.0\.bias.* ({moment})"):
        fit(trainer(tmp_path, AsyncPS(workers=workers), max_epochs=3, callbacks=[In(hook, way)]), Plain())


@pytest.mark.parametrize("rule", ["async", "sync"])
def test_weights_saved_at_the_end_of_training_are_the_final_ones(rule: Any, tmp_path: Path) -> None:
    path = tmp_path / "saved.pt"
    model = Plain()
    fit(trainer(tmp_path, AsyncPS(workers=2, rule=rule), callbacks=[Saves(path)]), model)
    saved = torch.load(path, weights_only=True)
    assert all(torch.equal(saved[name], value) for name, value in model.state_dict().items())
    assert path.stat().st_size < 10_000, "more than the weights themselves"


@pytest.mark.thorough
@ways
def test_weights_swapped_in_at_the_end_of_training_are_kept(way: Write, tmp_path: Path) -> None:
    found = two(tmp_path, In("on_train_end", way))
    torch.testing.assert_close(found, two(tmp_path) / 2, rtol=1e-5, atol=1e-6)


class Target(Plain):
    """With a frozen copy that the optimizer has too, and that is moved towards the network after every step."""

    def __init__(self) -> None:
        super().__init__(lambda model: SGD(model.parameters(), lr=0.05))
        self.target = copy.deepcopy(self.net).requires_grad_(False)

    def on_train_batch_end(self, *args: Any) -> None:
        for mine, other in zip(self.target.parameters(), self.net.parameters(), strict=True):
            mine.data.mul_(0.9).add_(other.data, alpha=0.1)


@pytest.mark.thorough
def test_a_target_network_moves_as_it_is_moved(tmp_path: Path) -> None:
    found, expected, _, _ = alone(tmp_path, Target)
    assert torch.equal(found, expected)
    other = Target()
    two(tmp_path, model=other)
    moved = weights(other)
    assert not torch.equal(moved, weights(Target()))
    last = list(other.target.parameters())[-1], list(other.net.parameters())[-1]
    assert 0 < (last[0] - last[1]).norm() < (Target().net[-1].bias - last[1]).norm()  # type: ignore[operator]


class Unfrozen(Plain):
    """A layer is trained from the second epoch on."""

    def __init__(self) -> None:
        super().__init__()
        self.net[0].requires_grad_(False)

    def on_train_epoch_start(self) -> None:
        self.net[0].requires_grad_(self.current_epoch > 0)


def test_a_frozen_layer_may_be_trained_later(tmp_path: Path) -> None:
    found, expected, _, _ = alone(tmp_path, Unfrozen)
    assert torch.equal(found, expected)
    other = Unfrozen()
    two(tmp_path, model=other)
    assert not torch.equal(weights(other)[:80], weights(Unfrozen())[:80])


class Normed(Plain):
    """Embeds the labels; the forward pass writes into the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(3, 5, max_norm=0.5)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return cross_entropy(self.net(batch[0] + self.words(batch[1])), batch[1])


@pytest.mark.thorough
def test_an_embedding_with_a_largest_norm(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"model: words has max_norm, .* Set max_norm to None"):
        fit(trainer(tmp_path, AsyncPS()), Normed())


def test_a_published_version_is_never_changed(tmp_path: Path) -> None:
    """Not even by who is refused a moment later."""

    class Looks(Plain):
        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            strategy: Any = self.trainer.strategy
            client = strategy.session.joined.clients[0]
            before = [view.clone() for view in client.host.partition.shards[0].views[client.bases[0].buffer]]
            by_data(self, [torch.full_like(p, 9.0) for p in self.parameters()])
            after = client.host.partition.shards[0].views[client.bases[0].buffer]
            same = all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
            raise KeyError("same" if same else "changed")

    with pytest.raises(KeyError, match="same"):
        two(tmp_path, model=Looks())


class Perturbs(Plain):
    """Writes into its weights within every step from `first` on, and restores them, as SAM and adversarial training
    do."""

    def __init__(self, write: Write, first: int = 0, restores: bool = True) -> None:
        super().__init__()
        self.write, self.first, self.restores, self.steps = write, first, restores, 0

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.steps += 1
        if self.steps > self.first:
            own = [p.detach().clone() for p in self.parameters()]
            self.write(self, [value * 1.01 for value in own])
            if self.restores:
                self.write(self, own)
        return super().training_step(batch, batch_idx)


class Swaps(Callback):
    """Shows other weights at the end of each epoch, in every worker, and restores the own ones."""

    def __init__(self, write: Write) -> None:
        self.write = write

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        own = [p.detach().clone() for p in pl_module.parameters()]
        self.write(pl_module, [torch.zeros_like(value) for value in own])
        self.write(pl_module, own)


OWN: dict[str, Callable[[], Any]] = {
    "local_sgd": lambda: AsyncPS("sync", workers=2, local=LocalSGD(every=2)),
    "diloco": lambda: AsyncPS("sync", workers=2, local=DiLoCo(every=2)),
    "elastic": lambda: AsyncPS("sync", workers=2, local=Elastic(every=2)),
    "downpour": lambda: AsyncPS(workers=2, local=Downpour(n_push=2, n_fetch=2)),
    "pull codec": lambda: AsyncPS("sync", workers=2, pull_codec="int8"),
    "d_psgd": lambda: Peers(workers=2),
    "early": lambda: Peers(workers=2, every=2, topology="complete"),
    "sgp": lambda: Peers(workers=2, exchange="sgp"),
    "ad_psgd": lambda: Peers(workers=2, exchange="ad_psgd", topology="bipartite"),
    "gossip": lambda: Peers(workers=2, exchange="gossip"),
}
"""Where workers have parameters of their own."""


def with_own(name: str, folder: Path, model: Plain, *callbacks: Callback) -> Tensor:
    return fit(trainer(folder, OWN[name](), callbacks=list(callbacks), max_epochs=3, num_sanity_val_steps=0), model)


@pytest.mark.each_value
@ways
@pytest.mark.parametrize("name", OWN)
def test_own_weights_may_be_written_and_restored_bit_for_bit(name: str, way: Write, tmp_path: Path) -> None:
    found = with_own(name, tmp_path, Perturbs(way), Average(way), Swaps(way))
    if name not in ("ad_psgd", "gossip", "downpour"):  # which depend on time
        torch.testing.assert_close(found, with_own(name, tmp_path, Plain()), rtol=1e-6, atol=1e-7)


@ways
@pytest.mark.parametrize("name", OWN)
def test_own_weights_that_stay_written_are_refused(name: str, way: Write, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"worker \d wrote into net\.0\.weight, net\.0\.bias.* in a forward pass"):
        with_own(name, tmp_path, Perturbs(way, restores=False))
    if way is not by_data:  # which leaves no trace, and is found in the first steps
        with pytest.raises(ValueError, match=r"worker \d wrote into net\.0\.weight, net\.0\.bias"):
            with_own(name, tmp_path, Perturbs(way, first=6, restores=False))
    with pytest.raises(ValueError, match=r"worker \d wrote into net\.0\.weight, .* since its last validation"):
        with_own(name, tmp_path, Plain(), In("on_validation_end", way))


@pytest.mark.parametrize("peers", [True, False])
def test_virtual_workers_may_write_and_restore(peers: bool, tmp_path: Path) -> None:
    clock = ClockSettings(gradient_s=0.05)
    made = (
        Peers(workers=2, host="virtual", clock=clock)
        if peers
        else AsyncPS("sync", workers=2, host="virtual", clock=clock, local=LocalSGD(every=2))
    )
    expected = fit(trainer(tmp_path, copy.deepcopy(made)), Plain())
    found = fit(trainer(tmp_path, made, callbacks=[Average(by_load), Swaps(by_load)]), Perturbs(by_load))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)
