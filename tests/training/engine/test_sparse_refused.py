"""What does not go with sparse tables is refused by name."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam

from scalebook.training.engine import Settings, SharedRun, join
from scalebook.training.engine.rules.codecs import Bf16
from scalebook.training.engine.rules.damping import DelayCompensation
from scalebook.training.engine.rules.local_steps import Downpour, LocalSGD
from scalebook.training.engine.store.table_optimizer import mark_tables
from tests.training.engine.towers import ROWS, WIDTH, Make, Towers, sgd

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch's own optimizers make such tensors


class SparserSGD(SGD):
    """A user's own may do more than rows."""


class TestRefused:
    @pytest.mark.parametrize(
        ("make", "says"),
        [
            (SparserSGD, "optimizer: is tests.training.engine.test_sparse_refused.SparserSGD, which"),
            (Adam, "optimizer: is Adam, which changes rows"),
            (lambda p: SGD(p, momentum=0.9), "optimizer: has momentum 0.9, which"),
            (lambda p: Adagrad(p, weight_decay=0.1), "optimizer: has weight_decay 0.1, which"),
        ],
    )
    def test_optimizers(self, make: Make, says: str) -> None:
        model = Towers()
        run = SharedRun(1, Settings())
        with pytest.raises(ValueError, match=says):
            join(run, run.member(0, 1.0), [make(model.parameters())], model=model)

    @pytest.mark.parametrize(
        ("settings", "key"),
        [
            (Settings(local=Downpour()), "local"),
            (Settings(push_codec=Bf16()), "push_codec"),
            (Settings(pull_codec=Bf16()), "pull_codec"),
            (Settings(damping=DelayCompensation(adaptive=True)), "damping"),
            (Settings(local=LocalSGD(4)), "local"),
        ],
        ids=str,
    )
    def test_settings(self, settings: Settings, key: str) -> None:
        model, run = Towers(), SharedRun(1, settings)
        with pytest.raises(ValueError, match=rf"^{key}: .* sparse tables.* sparse: false"):
            join(run, run.member(0, 1.0), [sgd(model.parameters())], model=model)

    def test_models(self) -> None:
        class Own(nn.Embedding):
            def forward(self, input: Tensor) -> Tensor:
                return F.embedding(input, self.weight, sparse=True)

        for module, says in (
            (Own(3, 2, sparse=True), "0 is a Own, which overrides forward"),
            (nn.Embedding(3, 2, sparse=True, max_norm=1.0), "0 has max_norm"),
        ):
            with pytest.raises(ValueError, match=says):
                mark_tables(nn.Sequential(module))

    def test_gradients_of_the_other_kind(self) -> None:
        model, run = Towers(), SharedRun(1, Settings())
        joined = join(run, run.member(0, 1.0), [sgd(model.parameters())], model=model)
        joined.name_parameters(model.named_parameters())
        joined.start()
        joined.begin()
        model.words.weight.grad = torch.ones(ROWS, WIDTH)
        with pytest.raises(ValueError, match=r"model: words\.weight has a dense gradient"):
            joined.clients[0].push()
