"""Virtual workers under Lightning: one process plays them all, on a virtual clock."""

import json
import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler, ModelCheckpoint
from torch import Tensor
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, IterableDataset

from scalebook.training.base.errors import ConfigError
from scalebook.training.engine.rules.clock_settings import ClockSettings, Death, Distribution, Link, MachineGroup
from scalebook.training.engine.rules.update_rules import Async, Bounded, Rule, RuleName, Sync
from scalebook.training.lightning import AsyncPS
from tests.training.lightning.async_ps.small import (
    HELD_OUT,
    SAMPLES,
    Diary,
    Small,
    data,
    diaries,
    fit,
    held_out,
    loader,
    make_sgd,
    seeded_model,
    trainer,
    weights,
)

DRAWN = ClockSettings(Distribution("gamma", 0.1, 0.4), server_s=0.002, link=Link(0.001, 1e7))
BATCHES = SAMPLES // 8


def virtual(workers: int = 4, clock: ClockSettings = DRAWN, **arguments: Any) -> AsyncPS:
    return AsyncPS(workers=workers, host="virtual", clock=clock, **arguments)


def scheduled(model: LightningModule, kind: type = Adam) -> Any:
    optimizer = kind(model.parameters(), lr=0.01)
    schedule = LambdaLR(optimizer, lambda step: 1 / (1 + step))
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Normed(Small):
    """With batch normalisation, whose statistics every worker has of its own."""

    def __init__(self, optimizer: Callable[[LightningModule], Any] = make_sgd) -> None:
        super().__init__(optimizer)
        self.net.insert(1, torch.nn.BatchNorm1d(16))


def normed(optimizer: Callable[[LightningModule], Any] = make_sgd) -> Normed:
    torch.manual_seed(7)
    return Normed(optimizer)


class Looks(Callback):
    """Notes virtual time and versions of each batch."""

    def __init__(self, folder: Path) -> None:
        self.path, self.notes = folder / "looks.json", {"base": [], "time": [], "rate": []}  # type: ignore[var-annotated]

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        strategy: Any = trainer.strategy
        self.notes["base"].append(strategy.version(trainer.optimizers[0]))
        self.notes["time"].append(strategy.figures.now())
        self.notes["rate"].append(trainer.optimizers[0].param_groups[0]["lr"])

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        strategy: Any = trainer.strategy
        self.notes["batches"] = [one.updates for one in strategy.figures.worker_times()]
        self.notes["compute"] = [one.compute for one in strategy.figures.worker_times()]
        self.notes["staleness"] = strategy.figures.staleness().counts.sum(0).tolist()
        self.notes["end"] = strategy.figures.now()
        self.path.write_text(json.dumps(self.notes))

    def read(self) -> Any:
        return json.loads(self.path.read_text())


@pytest.mark.parametrize(("make", "clock"), [(make_sgd, DRAWN), (scheduled, DRAWN), (scheduled, ClockSettings(1.0))])
def test_one_virtual_worker_is_a_plain_trainer_bit_for_bit(tmp_path: Path, make: Any, clock: ClockSettings) -> None:
    plain = fit(trainer(tmp_path, "auto"), normed(make))
    played = trainer(tmp_path, virtual(1, clock))
    assert torch.equal(fit(played, normed(make)), plain)
    assert played.global_step == 2 * BATCHES


def test_workers_that_are_groups_of_equal_machines_take_the_seconds_of_the_formula(tmp_path: Path) -> None:
    looks, group = Looks(tmp_path), MachineGroup(4, 2, bytes=64, bandwidth=1024, latency_s=0.0625)
    grouped = fit(trainer(tmp_path, virtual(4, ClockSettings(0.5, group=group)), callbacks=[looks]))
    assert looks.read()["end"] == (0.5 / 4 + 2 * (0.0625 + 0.0625)) * 2 * BATCHES / 4
    assert torch.equal(grouped, fit(trainer(tmp_path, virtual(4, ClockSettings(0.5)))))  # in the same order


@pytest.mark.thorough
def test_sync_with_several_is_one_process_with_a_batch_as_much_larger(tmp_path: Path) -> None:
    def model() -> Small:
        made = seeded_model()
        made.net[2] = torch.nn.Identity()
        return made

    together, alone = model(), model()
    trainer(tmp_path, virtual(4, rule="sync")).fit(together, loader(), held_out())
    trainer(tmp_path, "auto").fit(alone, DataLoader(data(), batch_size=32), held_out())
    torch.testing.assert_close(weights(together), weights(alone), rtol=0, atol=1e-6)


def test_equal_workers_are_stale_by_all_the_others_after_the_start(tmp_path: Path) -> None:
    looks = Looks(tmp_path)
    fit(trainer(tmp_path, virtual(4, ClockSettings(0.5)), callbacks=[looks]))
    seen = looks.read()
    assert seen["staleness"][:4] == [1, 1, 1, 2 * BATCHES - 3]
    assert seen["base"][4:] == list(range(1, 2 * BATCHES - 3))
    assert seen["time"] == [0.5 * (1 + i // 4) for i in range(2 * BATCHES)]
    assert seen["end"] == 0.5 * 2 * BATCHES / 4
    assert seen["compute"] == [pytest.approx(3.0)] * 4


def test_a_worker_of_half_the_speed_computes_half_as_much(tmp_path: Path) -> None:
    looks = Looks(tmp_path)
    clock = ClockSettings(1.0, stragglers={2: 2.0})
    fit(trainer(tmp_path, virtual(3, clock), max_epochs=5, callbacks=[looks]))
    assert looks.read()["batches"] == [24, 24, 12]


@pytest.mark.thorough
@pytest.mark.parametrize("rule", ["async", "bounded", "sync", "softsync"])
def test_two_runs_are_the_same_to_the_last_bit(tmp_path: Path, rule: RuleName) -> None:
    """Random times, links, deaths, dropout and batch normalisation; another seed is another run. The second
    has one core."""
    clock = ClockSettings(
        DRAWN.gradient_s, {1: 3.0}, 0.002, Link(0.001, 1e7), {}, Link(0.0, 2e7), [Death(2, 0.25, 0.6), Death(3, 0.4)]
    )
    cores, runs = os.sched_getaffinity(0), []
    try:
        for allowed in (cores, {min(cores)}):
            os.sched_setaffinity(0, allowed)
            runs.append(fit(trainer(tmp_path, virtual(4, clock, rule=rule)), normed()))
    finally:
        os.sched_setaffinity(0, cores)
    assert torch.equal(*runs)
    if rule == "async":
        assert not torch.equal(runs[0], fit(trainer(tmp_path, virtual(4, DRAWN, rule=rule)), normed()))


@pytest.mark.parametrize(
    ("rule", "deaths"),
    [(Async(), [Death(1, 0.25), Death(2, 0.3, 0.5)]), (Sync(2, cancel=True), [])],
    ids=["dies", "stops"],
)
def test_every_sample_is_seen_once_an_epoch_whoever_dies_or_stops(
    tmp_path: Path, rule: Rule, deaths: list[Death]
) -> None:
    clock = ClockSettings(Distribution("uniform", 0.1, 0.5), deaths=deaths)
    made = trainer(tmp_path, virtual(4, clock, rule=rule), max_epochs=3, callbacks=[Diary(tmp_path)])
    fit(made)
    (diary,) = diaries(tmp_path)
    assert Counter(diary["train"]) == dict.fromkeys(range(SAMPLES), 3)
    assert diary["updates"] == made.global_step == 3 * BATCHES / rule.averaged(4)


def test_worker_0_validates_where_it_would_and_all_see_its_samples(tmp_path: Path) -> None:
    """A worker's share of an epoch is 3 batches, half of which is 1: after each 4 of all."""
    made = trainer(tmp_path, virtual(4), max_epochs=2, callbacks=[Diary(tmp_path)], val_check_interval=0.5)
    fit(made)
    (diary,) = diaries(tmp_path)
    assert diary["validations"] == 6
    assert diary["val"] == list(range(HELD_OUT)) * 6


def test_a_part_of_an_epoch_is_a_batch_of_each_worker_at_least(tmp_path: Path) -> None:
    """A tenth of a worker's 3 batches is none: after each 4 of all, and not after each gradient."""
    made = trainer(tmp_path, virtual(4), max_epochs=2, callbacks=[Diary(tmp_path)], val_check_interval=0.1)
    fit(made)
    assert diaries(tmp_path)[0]["validations"] == 6


def test_across_epochs_a_validation_counts_the_batches_of_each_worker(tmp_path: Path) -> None:
    """Two epochs have 24 batches of all: after the 16th, since 4 of each of 4 workers are 16."""
    asked: dict[str, Any] = {"val_check_interval": 4, "check_val_every_n_epoch": None}
    made = trainer(tmp_path, virtual(4), max_epochs=2, callbacks=[Diary(tmp_path)], **asked)
    fit(made)
    (diary,) = diaries(tmp_path)
    assert diary["validations"] == 1
    assert diary["updates"] == 2 * BATCHES


@pytest.mark.parametrize("host", ["inline", "process", "virtual"])
def test_an_interval_that_no_epoch_reaches_is_refused(host: Any, tmp_path: Path) -> None:
    strategy = virtual(4) if host == "virtual" else AsyncPS(workers=4, host=host)
    made = trainer(tmp_path, strategy, max_epochs=1, callbacks=[Diary(tmp_path)], val_check_interval=4)
    with pytest.raises(
        ConfigError, match=r"^trainer.val_check_interval: is 4, but each of the 4 workers has 3 batches"
    ):
        fit(made)
    assert all(diary["train"] == [] for diary in diaries(tmp_path))


def test_the_rate_that_travels_is_that_of_the_version_computed_from(tmp_path: Path) -> None:
    looks = Looks(tmp_path)
    made = trainer(tmp_path, virtual(4), callbacks=[looks])
    fit(made, seeded_model(partial(scheduled, kind=SGD)))
    seen = looks.read()
    assert seen["rate"] == [pytest.approx(0.01 / (1 + base)) for base in seen["base"]]
    assert any(base < number for number, base in enumerate(seen["base"]))


def test_a_rate_that_a_callback_sets_stays(tmp_path: Path) -> None:
    class Sets(Callback):
        def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
            if trainer.global_step == 5:
                trainer.optimizers[0].param_groups[0]["lr"] = 0.5

    looks = Looks(tmp_path)
    fit(trainer(tmp_path, virtual(2, ClockSettings(1.0)), callbacks=[Sets(), looks]))
    rates = looks.read()["rate"]
    assert set(rates[:5]) == {0.05}
    assert set(rates[7:]) == {0.5}


def test_the_budget_of_updates_is_met_exactly(tmp_path: Path) -> None:
    made = trainer(tmp_path, virtual(4, rule=Bounded(1)), max_epochs=-1, max_steps=17, callbacks=[Diary(tmp_path)])
    fit(made)
    assert made.global_step == 17
    assert diaries(tmp_path)[0]["updates"] == 17


def test_what_is_saved_is_what_was_validated_and_a_run_goes_on_from_it(tmp_path: Path) -> None:
    saves = ModelCheckpoint(tmp_path, "{step}-{val/loss:.6f}", save_top_k=-1, auto_insert_metric_name=False)
    usual: Any = {"enable_checkpointing": True, "callbacks": [saves]}
    fit(trainer(tmp_path, virtual(4), **usual), normed())
    plain, paths = trainer(tmp_path, "auto", **usual), sorted(tmp_path.rglob("*.ckpt"))
    for path in paths:
        (found,) = plain.validate(normed(), held_out(), ckpt_path=path, verbose=False)
        assert found["val/loss"] == pytest.approx(float(path.stem.split("-")[1]), abs=1e-6)
    first = paths[0]
    assert len(paths) == 2
    for strategy in (virtual(4), "auto"):
        again = trainer(tmp_path, strategy, enable_checkpointing=True, callbacks=[Diary(tmp_path), saves])
        fit(again, normed(), ckpt_path=first)
        seen = Counter(diaries(tmp_path)[0]["train"])
        assert again.current_epoch == 2
        assert set(seen.values()) == {1}, "what was under way is computed anew"


@pytest.mark.thorough
def test_time_goes_on_where_the_checkpoint_was(tmp_path: Path) -> None:
    looks = Looks(tmp_path)
    fit(trainer(tmp_path, virtual(2, ClockSettings(1.0)), enable_checkpointing=True, max_epochs=1))
    (path,) = tmp_path.rglob("*.ckpt")
    fit(
        trainer(tmp_path, virtual(2, ClockSettings(1.0)), max_epochs=2, enable_checkpointing=True, callbacks=[looks]),
        ckpt_path=path,
    )
    assert looks.read()["time"] == [6.0 + 1 + i // 2 for i in range(BATCHES)]


def test_batch_statistics_that_are_validated_are_the_mean_over_the_workers(tmp_path: Path) -> None:
    model = normed()
    model.net[1] = statistics = torch.nn.BatchNorm1d(16, momentum=None)  # of all batches
    model.make_optimizer = lambda module: SGD(module.parameters(), lr=0.0)
    trainer(tmp_path, virtual(4, ClockSettings(1.0)), max_epochs=1).fit(model, loader(), held_out())
    with torch.no_grad():
        mean = model.net[0](torch.cat([batch[0] for batch in loader()])).mean(0)
    torch.testing.assert_close(statistics.running_mean, mean)


class Swaps(Callback):
    """Validates other weights, as moving averages do."""

    def __init__(self, back: bool) -> None:
        self.back = back
        self.kept: list[Tensor] = []

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.kept = [p.detach().clone() for p in pl_module.parameters()]
        for parameter in pl_module.parameters():
            parameter.data.zero_()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for parameter, kept in zip(pl_module.parameters(), self.kept, strict=True):
            if self.back:
                parameter.data.copy_(kept)


def test_weights_swapped_for_a_validation_change_nothing_if_put_back_and_are_refused_if_not(tmp_path: Path) -> None:
    usual = {"num_sanity_val_steps": 0}
    untouched = fit(trainer(tmp_path, virtual(3), **usual))
    assert torch.equal(fit(trainer(tmp_path, virtual(3), callbacks=[Swaps(True)], **usual)), untouched)
    with pytest.raises(ValueError, match=r"wrote into net\.0\.weight.* since its last step, validation or checkpoint"):
        fit(trainer(tmp_path, virtual(3), callbacks=[Swaps(False)], **usual))


def test_a_run_may_end_while_workers_fetch_parameters_for_the_next_epoch(tmp_path: Path) -> None:
    """They have batches then, which nobody trains."""

    class EndsTheEpoch(Callback):
        def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
            trainer.should_stop = not trainer.sanity_checking

    clock = ClockSettings(Distribution("exponential", 0.1), link=Link(0.7))
    made = trainer(tmp_path, virtual(4, clock, rule="sync"), callbacks=[EndsTheEpoch()])
    made.fit(seeded_model(), loader(), held_out())
    assert made.global_step == 3  # 12 batches of 8


@pytest.mark.parametrize("workers", [1, 3])
def test_who_writes_into_parameters_in_a_step_is_refused(workers: int, tmp_path: Path) -> None:
    class Writes(Callback):
        def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
            pl_module.net[0].bias.data.fill_(0.25)

    with pytest.raises(ValueError, match=r"wrote into net\.0\.bias"):
        fit(trainer(tmp_path, virtual(workers), callbacks=[Writes()]))


def test_what_virtual_workers_cannot_do_is_refused_by_name(tmp_path: Path) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(data())

    by_hand = seeded_model()
    by_hand.automatic_optimization = False
    with pytest.raises(ValueError, match=r"accumulate_grad_batches: is 2, but virtual workers push once per batch"):
        fit(trainer(tmp_path, virtual(), accumulate_grad_batches=2))
    with pytest.raises(ValueError, match=r"callbacks: GradientAccumulationScheduler .*, but virtual workers push once"):
        fit(trainer(tmp_path, virtual(), callbacks=[GradientAccumulationScheduler({1: 2})]))
    with pytest.raises(ValueError, match=r"model: optimizes manually, but virtual workers push once"):
        fit(trainer(tmp_path, virtual()), by_hand)
    with pytest.raises(ValueError, match=r"data: virtual workers take turns with the batches of one loader"):
        trainer(tmp_path, virtual()).fit(seeded_model(), DataLoader(Stream(), batch_size=8), held_out())


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"host": "virtual"}, r"clock: is missing, .*Set how long a gradient takes, such as clock: {gradient_s: 0.05}"),
        (
            {"clock": ClockSettings(1.0)},
            r"clock: is for virtual workers only, but with host inline workers run in real time",
        ),
        ({"host": "virtual", "clock": ClockSettings(-1.0)}, r"clock.gradient_s: -1.0 is less than 0"),
        ({"host": "virtual", "clock": ClockSettings(1.0, {7: 2.0})}, r"clock.stragglers: worker 7 does not exist"),
    ],
)
def test_a_bad_clock_is_refused_before_anything_starts(tmp_path: Path, arguments: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        fit(trainer(tmp_path, AsyncPS(workers=2, **arguments)))
