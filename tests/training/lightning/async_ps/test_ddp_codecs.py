"""DDP with codecs: what replicas become, what is counted, what a checkpoint keeps, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor
from torch.nn import EmbeddingBag, Linear
from torch.nn.functional import cross_entropy

from scalebook.training.engine.rules.codecs import Bf16, Codec, CodecName, Fp32, PowerSgd, make_codec
from scalebook.training.lightning import DDP
from scalebook.training.lightning.ddp.ddp import LENGTH_BYTES
from tests.training.lightning.async_ps.small import Batch, Small, fit, make_sgd, seeded_model, trainer, weights

pytestmark = pytest.mark.long

SHAPES = ((16, 5), (16,), (3, 16), (3,))
VALUES = 16 * 5 + 16 + 3 * 16 + 3


class Noting(Callback):
    """Each worker writes down what it has counted, and its weights."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        strategy: Any = trainer.strategy
        counted = {"pushed": strategy.exchange.pushed_bytes, "pulled": strategy.exchange.pulled_bytes}
        counted |= {"weights": weights(pl_module).tolist(), "steps": trainer.global_step}
        (self.folder / f"{trainer.global_rank}.json").write_text(json.dumps(counted))


def run(folder: Path, strategy: DDPStrategy, workers: int = 2, **settings: Any) -> tuple[Tensor, list[dict[str, Any]]]:
    folder.mkdir(exist_ok=True)
    callbacks = [Noting(folder)] if isinstance(strategy, DDP) else []
    model = seeded_model()
    model.net[2].p = 0.0  # type: ignore[assignment]  # Lightning's workers all drop the same
    end = fit(trainer(folder, strategy, devices=workers, callbacks=callbacks, **settings), model)
    return end, [json.loads(path.read_text()) for path in sorted(folder.glob("?.json"))]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Tensor:
    """Weights that Lightning's DDP reaches with two workers."""
    return run(tmp_path_factory.mktemp("plain"), DDPStrategy(start_method="fork"))[0]


@pytest.mark.thorough
def test_counting_changes_no_bit_also_of_three_workers(tmp_path: Path) -> None:
    theirs, _ = run(tmp_path / "theirs", DDPStrategy(start_method="fork"), 3)
    ours, told = run(tmp_path / "ours", DDP(), 3)
    assert torch.equal(ours, theirs)
    assert {(one["pushed"], one["pulled"]) for one in told} == {(8 * 4 * VALUES, 8 * 4 * VALUES)}


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("codec", "near"),
    [("bf16", 1e-3), ("fp16", 1e-4), (Bf16(error_feedback=True), 1e-4), ("int8", 1e-3), ("sign", 0.1), ("qsgd", 2e-3),
     ("topk", 0.1), ("randomk", 0.15), (PowerSgd(rank=1), 0.05), (Fp32(zstd=1), 1e-6)],
    ids=str,
)  # fmt: skip
def test_replicas_are_one_and_near_those_of_fp32(codec: Any, near: float, plain: Tensor, tmp_path: Path) -> None:
    end, told = run(tmp_path, DDP(codec=codec))
    assert told[0]["weights"] == told[1]["weights"] == end.tolist()
    assert 0 < float((end - plain).abs().max()) < near or isinstance(codec, Fp32)
    made: Codec = make_codec(codec)
    steps = told[0]["steps"]
    if codec in ("bf16", "fp16"):
        expected = steps * 2 * VALUES
        assert [one["pushed"] for one in told] == [one["pulled"] for one in told] == [expected] * 2
    else:
        most = steps * (made.nbytes(SHAPES) + LENGTH_BYTES)
        assert [one["pushed"] for one in told] == [one["pulled"] for one in told]
        assert told[0]["pushed"] <= most if made.zstd else told[0]["pushed"] == most


def test_beyond_fp16_gradients_travel_as_they_are(tmp_path: Path) -> None:
    class Steep(Small):
        def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
            return 1e7 * cross_entropy(self.net(batch[0]), batch[1])

    def ended(codec: CodecName) -> Tensor:
        torch.manual_seed(7)
        model = Steep(lambda module: torch.optim.SGD(module.parameters(), lr=1e-9))
        return fit(trainer(tmp_path, DDP(codec=codec), devices=2, max_epochs=1), model)

    assert torch.equal(ended("fp16"), ended("fp32"))


@pytest.mark.sampled
@pytest.mark.parametrize("codec", ["sign", PowerSgd(rank=1)], ids=str)
def test_a_fit_that_goes_on_has_what_the_codec_kept(codec: Any, tmp_path: Path) -> None:
    """Dropout is left out: its random streams are not a checkpoint's."""

    def model() -> Small:
        made = seeded_model()
        made.net[2] = torch.nn.Identity()
        return made

    def to(epochs: int, given: DDP, **arguments: Any) -> tuple[Tensor, Trainer]:
        made = trainer(tmp_path, given, devices=2, max_epochs=epochs)
        return fit(made, model(), **arguments), made

    whole, _ = to(2, DDP(codec=codec))
    path = tmp_path / "first.ckpt"

    class Saving(Callback):
        def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
            trainer.save_checkpoint(path)

    fit(trainer(tmp_path, DDP(codec=codec), devices=2, max_epochs=1, callbacks=[Saving()]), model())
    resumed, _ = to(2, DDP(codec=codec), ckpt_path=path)
    assert torch.equal(resumed, whole)
    kept = torch.load(path, weights_only=True)["scalebook_ddp"]
    assert kept["codec"] == repr(make_codec(codec))
    assert len(kept["workers"]) == 2
    ((_, residual),) = kept["workers"][0]["residuals"]
    assert residual.numel() == make_codec(codec).kept(SHAPES)
    assert residual.abs().max() > 0


def test_what_cannot_be_is_refused_by_key_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^codec: 'bf8' is unknown. Use one of fp32"):
        DDP(codec="bf8")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"codec: sign cannot be combined with a ddp_comm_hook. Use fp32"):
        DDP(codec="sign", ddp_comm_hook=print)
    with pytest.raises(ValueError, match=r"codec.rank: 99 does not make any matrix of this model smaller. Use at"):
        fit(trainer(tmp_path, DDP(codec=PowerSgd(rank=99)), devices=2))

    class Sparse(Small):
        def __init__(self) -> None:
            super().__init__(make_sgd)
            self.table = EmbeddingBag(4, 2, sparse=True, mode="sum")
            self.head = Linear(2, 3)

    with pytest.raises(ValueError, match=r"int8 supports only dense gradients, but the gradient of table is sparse"):
        fit(trainer(tmp_path, DDP(codec="int8"), devices=2), Sparse())


def test_rows_of_a_sparse_table_are_counted_as_rows(tmp_path: Path) -> None:
    class Table(Small):
        def __init__(self) -> None:
            super().__init__(make_sgd)
            self.table = EmbeddingBag(1000, 2, sparse=True, mode="sum")
            self.net = torch.nn.Sequential(Linear(2, 3))

        def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
            return cross_entropy(self.net(self.table(batch[2][:, None])), batch[1])

        def validation_step(self, batch: Batch, batch_idx: int) -> None:
            pass

    fit(trainer(tmp_path, DDP(), devices=2, max_epochs=1, callbacks=[Noting(tmp_path)]), Table())
    told = json.loads((tmp_path / "0.json").read_text())
    rows = 8 * (8 + 2 * 4)  # a batch's: each a place and two values
    dense = 4 * (2 * 3 + 3)
    assert told["pushed"] == told["steps"] * (rows + dense)
    assert told["pulled"] == told["steps"] * (2 * rows + dense)
