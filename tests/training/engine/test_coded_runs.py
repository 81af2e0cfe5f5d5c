"""Codecs in the running engine: what is applied, what stays with the worker, what is counted."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from allpairspy import AllPairs
from torch import Tensor
from torch.optim import SGD

from scalebook.training.engine import Clip, HostName, Settings
from scalebook.training.engine.codecs.coder import Coder, Encoded
from scalebook.training.engine.rules.codecs import Bf16, Codec, Fp16, Fp32, Int8, PowerSgd, Qsgd, RandomK, Sign, TopK
from scalebook.training.engine.rules.damping import DropAbove
from scalebook.training.engine.rules.local_steps import Downpour
from scalebook.training.engine.rules.update_rules import Bounded, Softsync, Sync
from scalebook.training.engine.store.coded_traffic import CodedPushes
from tests.training.engine.driven import Driven, driven, random_tensors

SHAPES = ((12, 9), (5,), (7, 20))
NUMBERS = [108, 5, 140]
RATE, STEPS = 0.25, 20


def kept(run: Driven, worker: int) -> list[Tensor]:
    """The worker's residual, by place."""
    partition = run.joined[0].clients[0].host.partition
    assert partition.coded is not None
    by_shard = partition.coded.residuals(worker)
    places: dict[int, Tensor] = {}
    for shard, residual in zip(partition.plan.shards, by_shard, strict=True):
        sizes = [NUMBERS[place] for place in shard.parameters]
        for place, part in zip(shard.parameters, torch.split(residual[: sum(sizes)], sizes), strict=True):
            places[place] = part.view(SHAPES[place])
    return [places[place] for place in range(len(SHAPES))]


def gradients(worker: int, step: int) -> list[Tensor]:
    return random_tensors(SHAPES, seed=100 * worker + step)


def assert_all_is_there(
    run: Driven, start: Sequence[Tensor], admitted: Sequence[list[Tensor]], averaged: int = 1
) -> None:
    """What moved the parameters and what workers keep is the sum of the gradients that were admitted."""
    end = run.newest()
    for place, (first, last) in enumerate(zip(start, end, strict=True)):
        whole = sum((one[place] for one in admitted), torch.zeros(SHAPES[place]))
        moved = (first - last) / RATE * averaged
        owed = sum((kept(run, worker)[place] for worker in range(len(run.joined))), torch.zeros(SHAPES[place]))
        assert torch.allclose(moved + owed, whole, atol=1e-4)


@pytest.mark.parametrize("host", ["inline", "process"])
@pytest.mark.parametrize("codec", [Int8(64), Sign(64), TopK(0.05), RandomK(0.05, zstd=1), PowerSgd(1)], ids=repr)
def test_nothing_that_was_admitted_is_lost(codec: Codec, host: HostName) -> None:
    start = random_tensors(SHAPES, seed=1)
    with driven(2, Settings(host=host, shards=2, push_codec=codec), start, lambda p: SGD(p, lr=RATE)) as run:
        admitted = []
        for step in range(STEPS):
            for worker in range(2):
                if step == 7 and worker == 1:
                    run.push(worker, [torch.full(shape, torch.inf) for shape in SHAPES], valid=False)
                    continue
                assert run.push(worker, gradients(worker, step))
                admitted.append(gradients(worker, step))
        assert any(part.any() for part in kept(run, 1))
        assert_all_is_there(run, start, admitted)


def test_a_dropped_gradient_leaves_the_residual_as_it_was() -> None:
    start = random_tensors(SHAPES, seed=1)
    settings = Settings(damping=DropAbove(0), push_codec=TopK(0.1))
    with driven(2, settings, start, lambda p: SGD(p, lr=RATE)) as run:
        assert run.push(1, gradients(1, 0))
        before = [part.clone() for part in kept(run, 0)]
        assert not run.push(0, gradients(0, 0))
        assert all(torch.equal(a, b) for a, b in zip(before, kept(run, 0), strict=True))
        assert run.push(0, gradients(0, 1))
        assert_all_is_there(run, start, [gradients(1, 0), gradients(0, 1)])


@pytest.mark.parametrize(
    ("settings", "averaged"),
    [({"local": Downpour(2, 1)}, 1), ({"rule": Sync()}, 1), ({"rule": Softsync(average=1)}, 1)],
    ids=["downpour", "sync", "softsync"],
)
def test_sums_and_rounds_too(settings: dict[str, Any], averaged: int) -> None:
    start = random_tensors(SHAPES, seed=1)
    with driven(1, Settings(push_codec=Sign(64), **settings), start, lambda p: SGD(p, lr=RATE)) as run:
        for step in range(STEPS):
            run.push(0, gradients(0, step))
        assert_all_is_there(run, start, [gradients(0, step) for step in range(STEPS)], averaged)


def test_clipped_first_then_encoded() -> None:
    start = random_tensors(SHAPES, seed=1)
    with driven(1, Settings(push_codec=TopK(0.1), clip=Clip("value", 0.5)), start, lambda p: SGD(p, lr=RATE)) as run:
        for step in range(STEPS):
            run.push(0, gradients(0, step))
        clipped = [[tensor.clamp(-0.5, 0.5) for tensor in gradients(0, step)] for step in range(STEPS)]
        assert_all_is_there(run, start, clipped)


def test_a_worker_that_died_between_push_and_residual_goes_on_with_the_newer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = random_tensors(SHAPES, seed=1)
    with driven(1, Settings(push_codec=TopK(0.1)), start, lambda p: SGD(p, lr=RATE)) as run:
        run.push(0, gradients(0, 0))
        with monkeypatch.context() as patch:
            patch.setattr(CodedPushes, "store_residual", lambda *_: None)
            run.push(0, gradients(0, 1))
        run.joined[0].begin()
        run.push(0, gradients(0, 2))
        assert_all_is_there(run, start, [gradients(0, step) for step in range(3)])
        run.joined[0].begin()
        assert_all_is_there(run, start, [gradients(0, step) for step in range(3)])


@pytest.mark.parametrize("host", ["inline", "process"])
@pytest.mark.parametrize(("codec", "off"), [(Bf16(), 2**-8), (Fp16(), 2**-11), (Fp32(zstd=1), 0.0)], ids=str)
def test_a_replica_is_what_was_decoded_and_the_shards_keep_their_own(codec: Codec, off: float, host: HostName) -> None:
    start = random_tensors(SHAPES, seed=1)
    settings = Settings(host=host, shards=2, pull_codec=codec)
    exact = [tensor.clone() for tensor in start]
    with driven(2, settings, start, lambda p: SGD(p, lr=RATE)) as run:
        before = [row.pulled_bytes for row in run.run.pushes() if row.worker == 0]
        for step in range(STEPS):
            run.push(0, gradients(0, step))
            exact = [a - RATE * g for a, g in zip(exact, gradients(0, step), strict=True)]
            for mine, whole in zip(run.replicas[0], exact, strict=True):
                assert torch.allclose(mine.detach(), whole, rtol=0, atol=off * float(whole.abs().max()) + 1e-5)
        if not codec.exact:
            assert any(not torch.allclose(m, w, rtol=0, atol=1e-5) for m, w in zip(run.replicas[0], exact, strict=True))
            for row, first, shapes in zip(run.run.pushes(), before, (SHAPES[:2], SHAPES[2:]), strict=False):
                assert row.pulled_bytes - first == STEPS * codec.nbytes(shapes)
        run.joined[0].snapshot()
        assert all(torch.allclose(m, w, rtol=0, atol=1e-5) for m, w in zip(run.replicas[0], exact, strict=True))
        run.joined[0].pull()


@pytest.mark.parametrize(
    "plain", [Settings(), Settings(local=Downpour(1, 3)), Settings(Sync())], ids=["async", "every third", "sync"]
)
@pytest.mark.parametrize("codec", [Int8(64), Sign(64), TopK(0.1), RandomK(0.1), PowerSgd(1), Qsgd(1, 64)], ids=repr)
def test_differences_come_to_the_newest_when_it_stands_still(codec: Codec, plain: Settings) -> None:
    """What one pull leaves out is part of the next."""
    start = random_tensors(SHAPES, seed=1)
    settings = replace(plain, pull_codec=codec)
    with driven(1, settings, start, lambda p: SGD(p, lr=RATE)) as run:
        for step in range(6):
            run.push(0, gradients(0, step))
        newest = run.joined[0].clients[0].host.partition.shards[0]
        whole = [value.clone() for value in newest.views[newest.newest().buffer]]

        def away() -> float:
            pairs = zip(run.replicas[0], whole, strict=True)
            return float(torch.cat([(mine.detach() - value).flatten() for mine, value in pairs]).norm())

        first = away()
        assert first > 0
        for _ in range(100):
            run.joined[0].pull()
        assert away() < 0.25 * first


FRAMED: list[Codec] = [
    Fp32(zstd=3), Bf16(), Fp16(), Int8(64), Sign(64), Qsgd(1), TopK(0.1, zstd=3), RandomK(0.1), PowerSgd(1),
]  # fmt: skip
"""All codecs; without zstd fp32 makes no frames, which test_moved_bytes.py holds against the tensors."""
OFTEN: dict[str, Settings] = {
    "async": Settings(),
    "sums of 2": Settings(local=Downpour(2, 1)),
    "every third": Settings(local=Downpour(1, 3)),
    "bounded": Settings(Bounded(1)),
    "sync": Settings(Sync()),
    "softsync": Settings(Softsync(2)),
}
PULLS: list[Codec] = [Fp32(), Bf16(), Int8(64, zstd=1), TopK(0.1)]


class Files:
    """Every frame as a file, whose size is what travels: below `pushed` by shard, or below `pulled`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder, self.where, self.count = folder, "pulled", 0
        encode, encode_push = Coder.encode, CodedPushes.encode

        def written(coder: Coder, *given: Any) -> Encoded:
            encoded = encode(coder, *given)
            self.count += 1
            (folder / f"{self.where}-{self.count}").write_bytes(encoded.frame.numpy().tobytes())
            self.where = "pushed-1" if self.where == "pushed-0" else self.where
            return encoded

        def pushed(pushes: CodedPushes, *given: Any) -> list[Tensor]:
            self.where = "pushed-0"
            frames = encode_push(pushes, *given)
            self.where = "pulled"
            return frames

        monkeypatch.setattr(Coder, "encode", written)
        monkeypatch.setattr(CodedPushes, "encode", pushed)

    def size(self, where: str) -> int:
        return sum(path.stat().st_size for path in self.folder.glob(f"{where}-*"))


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("codec", "often", "host", "pulls"), list(AllPairs([FRAMED, [*OFTEN], ["inline", "process"], PULLS])), ids=str
)
def test_bytes_counted_are_those_of_the_frames_in_files(
    codec: Codec, often: str, host: HostName, pulls: Codec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = Files(monkeypatch, tmp_path)
    start = random_tensors(SHAPES, seed=1)
    plain = OFTEN[often]
    settings = replace(plain, shards=2, host=host, push_codec=codec, pull_codec=pulls)
    with driven(1, settings, start, lambda p: SGD(p, lr=RATE)) as run:
        first = run.run.worker_times()[0].pulled_bytes - files.size("pulled")
        for step in range(12):
            ones: list[Tensor | None] = [
                None if step % 3 == place == 1 else torch.ones(s) for place, s in enumerate(SHAPES)
            ]
            run.push(0, ones, valid=step != 4)
        (times,), rows = run.run.worker_times(), run.run.pushes()
    sizes = [files.size(f"pushed-{shard}") for shard in range(2)]
    assert [row.pushed_bytes for row in rows] == sizes
    assert times.pushed_bytes == sum(sizes) > 0
    assert times.pulled_bytes == sum(row.pulled_bytes for row in rows)
    as_they_are = 0 if pulls.codes else 12 // plain.local.n_fetch * 4 * sum(NUMBERS)
    assert times.pulled_bytes == first + files.size("pulled") + as_they_are, "the first parameters come as they are"
    assert times.gradients == 12
