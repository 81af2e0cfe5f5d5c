"""Peers under the Trainer: real processes and virtual ones, weights, checkpoints, deaths."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam

from scalebook.training.engine.rules.codecs import TopK
from scalebook.training.engine.rules.exchanges import DPsgd
from scalebook.training.engine.rules.peering import Peering
from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.engine.rules.topologies import Torus
from scalebook.training.lightning import AsyncPS, Peers
from tests.training.lightning.async_ps.small import (
    Diary,
    Small,
    diaries,
    fit,
    held_out,
    kill_me,
    loader,
    seeded_model,
    trainer,
    weights,
)
from tests.training.lightning.async_ps.test_async_ps_deaths import Once

pytestmark = pytest.mark.long

LIMITS = Limits(deadline_s=30)
CLOCK: Any = {"gradient_s": 0.05}
EXCHANGES: Any = ["d_psgd", "ad_psgd", "sgp", "gossip"]


def make_adam(model: LightningModule) -> Adam:
    return Adam(model.parameters(), lr=0.01)


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_two_real_peers(exchange: Any, tmp_path: Path) -> None:
    """They learn, each sees its part of the data, and all batches are seen once an epoch."""
    strategy = Peers(2, exchange=exchange, limits=LIMITS)
    model = seeded_model(make_adam)
    before = trainer(tmp_path, "auto").validate(seeded_model(), held_out(), verbose=False)[0]["val/loss"]
    made = trainer(tmp_path, strategy, 2, max_epochs=12, callbacks=[Diary(tmp_path)])
    fit(made, model)
    assert float(made.callback_metrics["val/loss"]) < 0.8 * before
    first, second = diaries(tmp_path)
    assert not first["errors"] + second["errors"]
    assert sorted(first["train"] + second["train"]) == sorted([*range(96)] * 12)
    gradients = 12 * 12
    assert strategy.figures.counts().updates == (gradients // 2 if exchange in ("d_psgd", "sgp") else gradients)
    times = strategy.figures.worker_times()
    assert all(one.pushed_bytes > 0 and one.pulled_bytes > 0 for one in times)


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_one_peer_is_plain_training(exchange: Any, tmp_path: Path) -> None:
    plain = fit(trainer(tmp_path, "auto"), seeded_model(make_adam))
    assert torch.equal(fit(trainer(tmp_path, Peers(1, exchange=exchange)), seeded_model(make_adam)), plain)


def test_the_complete_graph_is_sync(tmp_path: Path) -> None:
    def weights_of(strategy: AsyncPS | Peers) -> torch.Tensor:
        model = seeded_model()
        trainer(tmp_path, strategy, 1, max_epochs=2).fit(model, loader(), held_out())
        return weights(model)

    server = weights_of(AsyncPS("sync", workers=3, host="virtual", clock=CLOCK, buffers="averaged"))
    peers = weights_of(Peers(3, topology="complete", host="virtual", clock=CLOCK))
    torch.testing.assert_close(peers, server, rtol=0, atol=1e-6)


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_a_checkpoint_has_the_mean_and_loads_anywhere(exchange: Any, tmp_path: Path) -> None:
    saving = ModelCheckpoint(tmp_path, filename="one", save_on_train_epoch_end=True)
    made = trainer(
        tmp_path, Peers(2, exchange=exchange, limits=LIMITS), 2, enable_checkpointing=True, callbacks=[saving]
    )
    model = seeded_model(make_adam)
    fit(made, model)
    saved = torch.load(tmp_path / "one.ckpt", weights_only=True)
    assert set(saved["state_dict"]) == set(model.state_dict())
    for name, value in model.state_dict().items():
        if "seen" not in name:
            torch.testing.assert_close(saved["state_dict"][name], value, rtol=0, atol=1e-6)
    for other in ("auto", Peers(2, exchange=exchange, limits=LIMITS), AsyncPS(workers=2, limits=LIMITS)):
        again = seeded_model(make_adam)
        further = trainer(
            tmp_path, other, 1 if other == "auto" else 2, max_epochs=4, enable_checkpointing=True, callbacks=[saving]
        )
        fit(further, again, ckpt_path=str(tmp_path / "one.ckpt"))
        assert further.global_step > saved["global_step"]


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("restarts", [0, 1])
def test_the_others_go_on_when_one_is_killed(exchange: Any, restarts: int, tmp_path: Path) -> None:
    strategy = Peers(3, exchange=exchange, topology="ring", limits=Limits(restarts, deadline_s=30))
    made = trainer(tmp_path, strategy, 3, max_epochs=6, callbacks=[Once(1, 5, kill_me), Diary(tmp_path)])
    fit(made, seeded_model(make_adam))
    assert made.state.finished
    assert strategy.figures.counts().updates > 0


@pytest.mark.parametrize("exchange", ["d_psgd", "ad_psgd"])
def test_virtual_peers_may_be_groups(exchange: Any, tmp_path: Path) -> None:
    """Four gradients of each, all of a quarter of the time and two phases of messages."""
    clock: Any = {"gradient_s": 0.5, "group": {"machines": 4, "bytes": 64, "bandwidth": 1024.0, "latency_s": 0.0625}}
    strategy = Peers(3, exchange=exchange, host="virtual", clock=clock)
    fit(trainer(tmp_path, strategy, max_epochs=1))
    computed = [times.compute for times in strategy.figures.worker_times()]
    assert computed == [pytest.approx(4 * (0.5 / 4 + 2 * (0.0625 + 0.0625)))] * 3


def test_many_virtual_peers(tmp_path: Path) -> None:
    strategy = Peers(16, topology="exponential", host="virtual", clock=CLOCK)
    made = trainer(tmp_path, strategy, 1, max_epochs=8)
    fit(made, seeded_model(make_adam))
    assert strategy.figures.counts().updates == 8  # of 12 batches an epoch 16 peers make one round


def test_every_argument_reaches_the_engine() -> None:
    strategy = Peers(
        4, exchange={"class_path": "DPsgd", "init_args": {"order": "combine_first"}}, topology="torus",  # type: ignore[arg-type]
        codec="topk", mixing=0.3, every=5, host="virtual", clock=CLOCK, limits=LIMITS, buffers="frozen",
    )  # fmt: skip
    settings = strategy.arguments.server
    assert settings.local == Peering(DPsgd("combine_first"), Torus(), codec=TopK(), mixing=0.3, every=5)
    assert settings.clock is not None
    assert (strategy.workers, strategy.arguments.buffers, strategy.arguments.limits) == (4, "frozen", LIMITS)


def test_peers_on_several_machines_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^workers: are peers, .* Set trainer\.num_nodes: 1, or use AsyncPS"):
        trainer(tmp_path, Peers(2), 2, num_nodes=2).fit(seeded_model(), loader(), held_out())


class Frozen(Small):
    """With a layer that does not require a gradient, which each worker writes into, and thaws in the second epoch."""

    def __init__(self) -> None:
        super().__init__(make_adam)
        self.first: Any = self.net[0]
        self.first.requires_grad_(False)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self.current_epoch == 0:
            self.first.bias.data.fill_(float(self.global_step + 1))
        elif batch_idx == 0 and self.current_epoch == 1:
            self.first.requires_grad_(True)


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_parameters_without_gradients_stay_each_worker_s_own(exchange: Any, tmp_path: Path) -> None:
    torch.manual_seed(7)
    model, strategy = Frozen(), Peers(2, exchange=exchange, limits=LIMITS)
    weight = model.first.weight.detach().clone()
    trainer(tmp_path, strategy, 2, max_epochs=1).fit(model, loader(), held_out())
    assert torch.equal(model.first.weight, weight)
    assert float(model.first.bias.detach().min()) >= 1
    bytes_of_one = 16 * 3 * 4 + 3 * 4
    sent = sum(times.pushed_bytes for times in strategy.figures.worker_times())
    assert sent % bytes_of_one == 0, "what is nobody's does not travel"
    assert sent > 0
    again = Frozen()
    trainer(tmp_path, Peers(2, exchange=exchange, limits=LIMITS), 2, max_epochs=3).fit(again, loader(), held_out())
    assert not torch.equal(again.first.weight, weight), "and is shared once it requires a gradient"


class TwoOptimizers(Small):
    """Each layer has one, and steps by hand."""

    automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = cross_entropy(self.net(batch[0]), batch[1])
        optimizers: Any = self.optimizers()
        for optimizer in optimizers:
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in optimizers:
            optimizer.step()
        return loss

    def configure_optimizers(self) -> Any:
        return [Adam(self.net[0].parameters(), lr=0.01), SGD(self.net[3].parameters(), lr=0.05)]


@pytest.mark.parametrize("exchange", [{"class_path": "DPsgd", "init_args": {"order": "combine_first"}}, *EXCHANGES])
def test_two_optimizers(exchange: Any, tmp_path: Path) -> None:
    torch.manual_seed(7)
    made = trainer(tmp_path, Peers(2, exchange=exchange, limits=LIMITS), 2, max_epochs=12)
    made.fit(TwoOptimizers(), loader(), held_out())
    assert float(made.callback_metrics["val/loss"]) < 1.0


class Meeting(Small):
    """All meet within each step, and count in it how far they are apart."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = cross_entropy(self.net(batch[0]), batch[1])
        self.log("train/all", loss, on_step=True, on_epoch=False, sync_dist=True)
        return loss


class Apart(Callback):
    """The consensus distance at the end."""

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        strategy: Any = trainer.strategy
        apart = strategy.figures.consensus()
        if trainer.is_global_zero and apart is not None:
            trainer.callback_metrics["apart"] = torch.tensor(apart.relative)


@pytest.mark.parametrize("order", ["adapt_first", "combine_first"])
def test_workers_that_meet_in_each_step_still_average(order: Any, tmp_path: Path) -> None:
    exchange: Any = {"class_path": "DPsgd", "init_args": {"order": order}}
    made = trainer(tmp_path, Peers(2, exchange=exchange, limits=LIMITS), 2, max_epochs=10, callbacks=[Apart()])
    made.fit(Meeting(make_adam), loader(), held_out())
    assert 0 < float(made.callback_metrics["apart"]) < 0.03
