"""Splits of one model against numbers that others have published: pipelines and tensor parallelism.

GPipe: all layers of its Transformer are alike, nothing is sent, forward passes are repeated.
torchgpipe: stages, microbatches and batch are those of its script; a module of ResNet-101 takes what a P40's data sheet
says, the longer of its operations at 11.76 TFLOP/s and its bytes at 346 GB/s, of which only proportions count (one P40
would make 130 samples/s; 96 were measured). Megatron-LM: one V100 makes 39 TFLOP/s, as published, however large its
part; 150 GB/s each way within a server, 100 GB/s between servers.

A row is met within 0.8 to 1.25; each miss has its cause. Left out are GPipe's AmoebaNet,
since what its layers cost is not published, and DistBelief's models, since neither the link nor a machine's rate is. Of
these `implied_ratio` says what they must have been. That 42 M parameters train slower beyond 8 machines is not in a
closed form: there more workers never make a tensor split slower, as long as the link has no latency and no worker is
slower than another.
"""

from collections.abc import Callable, Iterator
from typing import Final

from scalebook.training.engine.rules.clock_settings import Link
from scalebook.training.planner.reliability import ComparedPlan
from scalebook.training.pricing.layers import Layer
from scalebook.training.pricing.links import Network
from scalebook.training.pricing.pipelines import StageTimes, play_pipeline
from scalebook.training.pricing.profile import Profile, SharedNode
from scalebook.training.pricing.splits import Split, price
from tests.published.rows import Report, Row, figures_of

GPIPE: Final = "Huang et al. 2019 (GPipe, arXiv:1811.06965v5), "
TORCHGPIPE: Final = "kakaobrain/torchgpipe, benchmarks/resnet101-speed: README.md and main.py"
MEGATRON: Final = "Shoeybi et al. 2020 (Megatron-LM, arXiv:1909.08053v4), "


# --- GPipe -----------------------------------------------------------------------------------------------------------

TABLE_2: Final = {1: (1.0, 1.07, 1.3), 4: (1.7, 3.2, 4.8), 32: (1.8, 3.4, 6.3)}
"""Transformer-48 on TPUs, by microbatches, on 2, 4 and 8 accelerators; over the first of them."""
TABLE_3: Final = (1.0, 1.8, 3.3)
"""A Transformer of 24 layers on P100 without NVLink, 32 microbatches, on 2, 4 and 8; over the first of them."""
ADJUSTED: Final = (
    "a pipeline allows about 16/7 and 32/11 times one microbatch on two; batches were adjusted to memory, as the table "
    "says"
)


def gpipe_on_tpu() -> Iterator[Row]:
    one_s = _equal_s(48, 2, 1)
    for microbatches, published in TABLE_2.items():
        for stages, speedup in zip((2, 4, 8), published, strict=True):
            cause = ADJUSTED if microbatches == 4 and stages > 2 else ""
            predicted = one_s / _equal_s(48, stages, microbatches)
            name = f"GPipe, Transformer-48, {stages} stages, {microbatches} microbatch{'es' * (microbatches > 1)}"
            yield Row(name, speedup, predicted, GPIPE + "table 2", cause)


def gpipe_on_p100() -> Iterator[Row]:
    for stages, speedup in zip((2, 4, 8), TABLE_3, strict=True):
        predicted = _equal_s(24, 2, 32) / _equal_s(24, stages, 32)
        yield Row(f"GPipe, Transformer-24, {stages} P100", speedup, predicted, GPIPE + "table 3")


def _equal_s(layers: int, stages: int, microbatches: int) -> float:
    """Seconds of an update of layers alike, of one second each."""
    equal = [Layer(str(number), 1.0, 2.0, 0.0, 0.0) for number in range(layers)]
    split = Split(stages=stages, microbatches=microbatches, schedule="gpipe", recomputed=microbatches)
    return price(equal, split, Profile(3.0 * layers, 1, 0.0, 0.0), Network()).seconds


# --- torchgpipe ------------------------------------------------------------------------------------------------------

P40_FLOPS: Final = 11.76e12
P40_MEMORY: Final = 346e9
PCIE: Final = 1.2e10
BASELINE: Final = 95.862
"""Samples a second of one P40 without a pipeline."""
MEASURED: Final = {1: 81.796, 2: 135.539, 4: 265.958, 8: 411.662}
"""Samples a second, by stages."""
RUNS: Final = {
    1: (220, 2, (370,)), 2: (25_000, 1667, (135, 235)), 4: (5632, 256, (44, 92, 124, 110)),
    8: (5400, 150, (26, 22, 33, 44, 44, 66, 66, 69)),
}  # fmt: skip
"""Batch, microbatches and modules by stage, by stages."""
BLOCKS: Final = ((64, 3, 1), (128, 4, 2), (256, 23, 2), (512, 3, 2))
"""ResNet-101's groups of bottlenecks: channels, blocks, stride of the first (He et al. 2016)."""


def torchgpipe() -> Iterator[Row]:
    """All but the last microbatch are computed again (checkpoint='except_last', torchgpipe's default)."""
    modules = list(resnet101())
    alone = 1 / sum(3 * forward_s for forward_s, _ in modules)
    for count, (batch, microbatches, balance) in RUNS.items():
        samples, begin, stages = batch / microbatches, 0, []
        for modules_of_stage in balance:
            part = modules[begin : begin + modules_of_stage]
            begin += modules_of_stage
            forward_s = samples * sum(each_s for each_s, _ in part)
            stages.append(StageTimes(forward_s, 2 * forward_s, samples * part[-1][1] / PCIE))
        played = play_pipeline(stages, microbatches, "gpipe", microbatches - 1)
        name = f"torchgpipe, ResNet-101, {count} stage{'s' * (count > 1)}"
        yield Row(name, MEASURED[count] / BASELINE, batch / played.seconds / alone, TORCHGPIPE)


def resnet101() -> Iterator[tuple[float, float]]:
    """Of each of its 370 modules, in torchgpipe's order: seconds of a sample's forward pass on a P40, and bytes of the
    output. Batch normalization reads its input twice; a sum reads two."""
    side, channels = 112, 64
    yield _convolution(3, 64, 7, 224, side)
    yield _passes(64, side, 3)
    yield _passes(64, side, 2)
    side = 56
    yield _seconds(0.0, 4.0 * 64 * (112**2 + side**2)), 4.0 * 64 * side**2
    for planes, count, stride in BLOCKS:
        for block in range(count):
            after = side // stride if block == 0 else side
            yield 0.0, 4.0 * channels * side**2  # sets the input aside
            yield _convolution(channels, planes, 1, side, side)
            yield _passes(planes, side, 3)
            yield _passes(planes, side, 2)
            yield _convolution(planes, planes, 3, side, after)
            yield _passes(planes, after, 3)
            yield _passes(planes, after, 2)
            yield _convolution(planes, 4 * planes, 1, after, after)
            yield _passes(4 * planes, after, 3)
            beside_s = 0.0
            if block == 0:
                beside_s = _convolution(channels, 4 * planes, 1, side, after)[0] + _passes(4 * planes, after, 3)[0]
            sums_s, nbytes = _passes(4 * planes, after, 3)
            yield sums_s + beside_s, nbytes
            yield _passes(4 * planes, after, 2)
            side, channels = after, 4 * planes
    yield _seconds(0.0, 4.0 * channels * side**2), 4.0 * channels
    yield 0.0, 4.0 * channels
    yield _seconds(2.0 * channels * 1000, 0.0), 4.0 * 1000


def _convolution(inputs: int, outputs: int, kernel: int, before: int, after: int) -> tuple[float, float]:
    nbytes = 4.0 * outputs * after**2
    flops = 2.0 * inputs * outputs * kernel**2 * after**2
    return _seconds(flops, 4.0 * inputs * before**2 + nbytes), nbytes


def _passes(channels: int, side: int, passes: int) -> tuple[float, float]:
    """So many readings or writings of a tensor."""
    nbytes = 4.0 * channels * side**2
    return _seconds(0.0, passes * nbytes), nbytes


def _seconds(flops: float, nbytes: float) -> float:
    return max(flops / P40_FLOPS, nbytes / P40_MEMORY)


# --- Megatron-LM -----------------------------------------------------------------------------------------------------

V100_FLOPS: Final = 39e12
BATCH, TOKENS, VOCABULARY = 8, 1024, 51_200
SIZES: Final = {1: (1536, 40), 2: (1920, 54), 4: (2304, 64), 8: (3072, 72)}
"""Width and layers, by GPUs of a tensor split (table 1)."""
WEAK: Final = {1: (1.0, 0.96), 2: (0.95, 0.83), 4: (0.82, 0.79), 8: (0.77, 0.74)}
"""Share of linear scaling, alone and with 64 replicas (figure 5)."""
STRONG: Final = {2: 1.64, 4: 2.34, 8: 2.98}
"""Speed-up of the smallest (table 8)."""
REPLICAS: Final = 64
SMALLER: Final = (
    "a GPU's rate is taken as that of the whole model, but falls with its part of each matrix; the paper names "
    "that, and memory bandwidth"
)


def weak() -> Iterator[Row]:
    for gpus, (alone, replicated) in WEAK.items():
        layers = transformer(*SIZES[gpus])
        source = MEGATRON + "table 1, figure 5"
        if gpus > 1:
            yield Row(f"Megatron-LM, weak, {gpus} GPUs", alone, _price(layers, Split(tensor=gpus)), source)
        split = Split(tensor=gpus, data=REPLICAS)
        yield Row(f"Megatron-LM, weak, {gpus * REPLICAS} GPUs", replicated, _price(layers, split), source)


def strong() -> Iterator[Row]:
    smallest = transformer(*SIZES[1])
    for gpus, speedup in STRONG.items():
        predicted = gpus * _price(smallest, Split(tensor=gpus))
        yield Row(
            f"Megatron-LM, strong, {gpus} GPUs", speedup, predicted, MEGATRON + "table 8", SMALLER if gpus > 2 else ""
        )


def transformer(width: int, count: int) -> list[Layer]:
    """GPT-2 in half precision: attention and feed-forward pairs, embedding and logits divided by the vocabulary. The
    logits' forward pass is not repeated, so their backward pass has one pass less here."""
    tokens, nbytes = BATCH * TOKENS, 2.0 * BATCH * TOKENS * width
    attention_s = tokens * (8 * width**2 + 4 * TOKENS * width) / V100_FLOPS
    pair_s = tokens * 16 * width**2 / V100_FLOPS
    logits_s = tokens * 2 * width * VOCABULARY / V100_FLOPS
    blocks = [
        layer
        for number in range(count)
        for layer in (
            Layer(
                f"{number}.attention", attention_s, 2 * attention_s, nbytes, 8.0 * width**2, kind="pair", width=width
            ),
            Layer(f"{number}.pair", pair_s, 2 * pair_s, nbytes, 16.0 * width**2, kind="pair", width=width),
        )
    ]
    embedding = Layer("embedding", 0.0, 0.0, nbytes, 2.0 * VOCABULARY * width, kind="pair", width=width)
    return [embedding, *blocks, Layer("logits", logits_s, logits_s, 4.0 * tokens, 0.0, kind="pair", width=width)]


def _price(layers: list[Layer], split: Split) -> float:
    """The share of linear scaling: what of an update computes. Gradients are reduced after the backward pass."""
    profile = Profile(
        sum(layer.seconds for layer in layers), BATCH, 0.0, 0.0, node=SharedNode(16, Link(0.0, 1.5e11)),
        overlap=False, all_reduce="ring",
    )  # fmt: skip
    priced = price(layers, Split(split.tensor, data=split.data, recomputed=1), profile, Network(Link(0.0, 1e11)))
    return priced.compute


# --- DistBelief ------------------------------------------------------------------------------------------------------


def implied_ratio(speedup: float, machines: int) -> float:
    """The x with which so many machines are K / (1 + (K - 1) x) times as fast as one (`splits.tensor_ratio`)."""
    return (machines / speedup - 1) / (machines - 1)


def distbelief() -> str:
    """What its two speed-ups say of its link: 2.2 by 8 machines, more than 12 by 81 (Dean et al. 2012, section 5)."""
    small, large = implied_ratio(2.2, 8), implied_ratio(12, 81)
    return (
        f"DistBelief: all that is sent took {small:.2f} of one machine's computing where 42 M fully connected "
        f"parameters were 2.2 times as fast on 8, so that no number of machines makes more than {1 / small:.1f}; less "
        f"than {large:.2f} for 1.7 G locally connected ones, more than 12 times as fast on 81."
    )


SYSTEMS: Final[dict[str, Callable[[], Iterator[Row]]]] = {
    "GPipe on TPU": gpipe_on_tpu, "GPipe on P100": gpipe_on_p100, "torchgpipe": torchgpipe,
    "Megatron-LM, weak scaling": weak, "Megatron-LM, strong scaling": strong,
}  # fmt: skip


def rows() -> list[Row]:
    return [row for part in SYSTEMS.values() for row in part()]


def report() -> Report:
    made = rows()
    compared = [
        ComparedPlan("split", "network", row.name, round(row.ratio, 3), system=system)
        for system, part in SYSTEMS.items()
        for row in part()
    ]
    return Report([*map(str, made), distbelief()], {"rows": figures_of(made)}, compared)
