"""A model that brings a plan as those of transformers do is split by it, and trains as in one process."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu

from scalebook.training.lightning.model_parallel.brought_plan import SummedGradients
from scalebook.training.lightning.model_parallel.splitting import tensor_plan
from tests.training.lightning.async_ps.small import Batch
from tests.training.lightning.model_parallel.split_model import Pair, adam, pair, train

WORDS, WIDTH, HEAD = 8, 8, 4


class Scale(nn.Module):
    """Of each head's queries, all heads alike."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HEAD))

    def forward(self, queries: Tensor) -> Tensor:
        return queries * self.weight


class Attention(nn.Module):
    """Four heads, of which two share keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.head_dim = HEAD
        self.attention_dropout = 0.0
        self.q_proj, self.o_proj = nn.Linear(WIDTH, 4 * HEAD), nn.Linear(4 * HEAD, WIDTH)
        self.k_proj = nn.Linear(WIDTH, 2 * HEAD, bias=False)  # of whose bias the gradient is rounding alone
        self.v_proj = nn.Linear(WIDTH, 2 * HEAD)
        self.q_norm = Scale()

    def forward(self, states: Tensor) -> Tensor:
        shape = (*states.shape[:-1], -1, HEAD)
        queries = self.q_norm(self.q_proj(states).view(shape)).transpose(1, 2)
        keys, values = (
            part(states).view(shape).transpose(1, 2).repeat_interleave(2, 1) for part in (self.k_proj, self.v_proj)
        )
        mixed = scaled_dot_product_attention(queries, keys, values, is_causal=True)
        read: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return read


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.self_attn, self.norm = Attention(), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH)

    def forward(self, states: Tensor) -> Tensor:
        states = states + self.self_attn(self.norm(states))
        added: Tensor = states + self.down(silu(self.up(states)))
        return added


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.layers = nn.Embedding(WORDS, WIDTH), nn.ModuleList(Layer() for _ in range(2))
        self._tp_plan = {
            "table": "embedding_rowwise",
            "layers.*.self_attn.q_proj": "colwise",
            "layers.*.self_attn.k_proj": "colwise",
            "layers.*.self_attn.v_proj": "colwise",
            "layers.*.self_attn.q_norm": "replicated_with_grad_allreduce",
            "layers.*.self_attn.k_norm": "no_such_style_for_no_such_part",
            "layers.*.self_attn.o_proj": "rowwise",
            "layers.*.norm": "replicate",
            "layers.*.up": "colwise",
            "layers.*.down": "rowwise",
        }

    def forward(self, words: Tensor) -> Tensor:
        states: Tensor = self.table(words)
        for layer in self.layers:
            states = layer(states)
        return states


class Language(nn.Module):
    """The table of words is its output layer too."""

    _tp_plan = {"lm_head": "colwise_gather_output"}  # noqa: RUF012  # as those classes have it

    def __init__(self) -> None:
        super().__init__()
        self.model, self.lm_head = Base(), nn.Linear(WIDTH, WORDS, bias=False)
        self.lm_head.weight = self.model.table.weight

    def forward(self, words: Tensor) -> Tensor:
        found: Tensor = self.lm_head(self.model(words))
        return found


class Reader(Pair):
    parallel_plan: Any = None

    def __init__(self, optimizer: Any = adam) -> None:
        super().__init__(optimizer)
        self.net: Any = Language()

    def loss(self, batch: Batch) -> Tensor:
        words = (batch[0] * 4).long() % WORDS
        return cross_entropy(self.net(words).mean(1)[:, :3], batch[1])


def reader() -> Any:
    return pair(kind=Reader)


@pytest.mark.parametrize("shard", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_it_trains_as_one_process(shard: int, tmp_path: Path) -> None:
    settings: Any = {"max_epochs": 10, "gradient_clip_val": 0.1}
    one, logged = train(tmp_path, model=reader(), **settings)
    model = reader()
    split, same = train(tmp_path, 2, shard, model, **settings)
    torch.testing.assert_close(split, one, rtol=0, atol=2e-6)
    assert same == pytest.approx(logged, abs=1e-6)
    assert model.net.lm_head.weight is model.net.model.table.weight


def test_styles_are_torch_s() -> None:
    plan = tensor_plan(reader(), 2)
    assert len(plan) == 2 + 2 * 7
    assert isinstance(plan["net.lm_head"], ColwiseParallel)
    assert plan["net.lm_head"].output_layouts[0].is_replicate()
    table = plan["net.model.table"]
    assert isinstance(table, RowwiseParallel)
    assert table.input_layouts[0].is_replicate()
    assert isinstance(plan["net.model.layers.1.self_attn.q_norm"], SummedGradients)
    assert "net.model.layers.1.norm" not in plan


def test_what_a_lightning_module_says_itself_goes_first() -> None:
    class Says(Reader):
        def parallel_plan(self) -> Any:
            return {"net.model.layers.0.up": ColwiseParallel(), "net.model.layers.0.down": RowwiseParallel()}

    assert sorted(tensor_plan(Says(), 2)) == ["net.model.layers.0.down", "net.model.layers.0.up"]


@pytest.mark.parametrize(
    ("part", "workers", "change", "message"),
    [
        (
            "net.model",
            2,
            {"layers.*.up": "moe_tp_experts"},
            "model: _tp_plan splits net.model.layers.0.up in the style moe_tp_",
        ),
        ("net.model", 2, {"layers.*.up.weight": "colwise"}, "model: _tp_plan splits net.model.layers.0.up.weight by "),
        ("net.model", 4, {}, "tensor: net.model.layers.0.self_attn.k_proj has 2 attention heads, which 4 workers"),
        ("net.model", 2, {"layers.*.norm": "colwise"}, "model: _tp_plan splits net.model.layers.0.norm, a LayerNorm"),
    ],
)
def test_what_cannot_be_split_so_is_refused(part: str, workers: int, change: Any, message: str) -> None:
    module = reader()
    module.get_submodule(part)._tp_plan.update(change)
    with pytest.raises(ValueError, match=re.escape(message)):
        tensor_plan(module, workers)


def test_dropout_between_heads_is_refused() -> None:
    module = reader()
    module.net.model.layers[1].self_attn.attention_dropout = 0.1
    with pytest.raises(
        ValueError, match=r"tensor: net.model.layers.1.self_attn.attention_dropout is 0.1, .*dropout to 0"
    ):
        tensor_plan(module, 2)


def test_a_parameter_of_two_layers_is_split_for_both_or_refused(tmp_path: Path) -> None:
    model = reader()
    model.net._tp_plan = {}
    with pytest.raises(ValueError, match=r"model: net.model.table.weight and net.lm_head.weight share one parameter"):
        train(tmp_path, 2, 1, model)
