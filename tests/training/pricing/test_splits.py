"""Splits of a model: each by what is known of it alone, and data parallel by the closed form of DDP."""

from dataclasses import replace

import pytest

from scalebook.training.engine.rules.clock_settings import Distribution, Link
from scalebook.training.planner.all_reduce import AllReduce
from scalebook.training.pricing.layers import Layer
from scalebook.training.pricing.links import Network
from scalebook.training.pricing.pipelines import bubble
from scalebook.training.pricing.profile import Profile, SharedNode
from scalebook.training.pricing.reductions import largest
from scalebook.training.pricing.splits import (
    Price,
    Split,
    TooFewLayersError,
    Traffic,
    WorkerMemory,
    data_ratio,
    factorizations,
    microbatch_counts,
    price,
    tensor_ratio,
)

F, B = 39e12, 1.25e9
"""A V100's half-precision rate in training, and 10 Gbit/s."""
ETHERNET = Network(Link(0.0, B), Link(0.0, B))


def pairs(width: int, batch: int, count: int) -> list[Layer]:
    """Feed-forward pairs from `width` to four times that and back: 16 d^2 operations of a sample's forward pass."""
    each_s, nbytes = 16 * width**2 * batch / F, 4.0 * batch * width
    return [
        Layer(f"pair.{number}", each_s, 2 * each_s, nbytes, 32.0 * width**2, 6 * nbytes, "pair", width)
        for number in range(count)
    ]


def system(layers: list[Layer], batch: int) -> Profile:
    whole = sum(layer.parameter_bytes for layer in layers)
    seconds = sum(layer.seconds for layer in layers)
    return Profile(seconds, batch, whole, whole, overlap=False, all_reduce="ring", weights=whole, state=2 * whole)


def priced(layers: list[Layer], split: Split, batch: int = 8, network: Network = ETHERNET) -> Price:
    return price(layers, split, system(layers, batch), network)


def test_the_two_numbers_of_a_machine_say_when_a_split_pays() -> None:
    """A split of several workers is faster than one exactly beyond them, and K / (1 + (K - 1) x) times as fast.

    A sample takes 6 operations a parameter, and a ring 2 (N - 1) / N x 4 bytes: together it pays from 4 F / 3 B samples
    of an update. A feed-forward pair (d to 4 d to d) takes 48 d^2 operations a sample, and two all-reduces of 4 d
    bytes: it pays from d = F / 3 B.
    """
    width, paying_batch = F / (3 * B), 4 * F / (3 * B)
    assert (width, paying_batch) == pytest.approx((10_400, 41_600))
    for much in (0.5, 0.99, 1.01, 4.0):
        layers = pairs(round(much * width), 8, 1)
        first = replace(layers[0], forward_s=0.0, backward_s=0.0, parameter_bytes=0.0, kind="whole")
        one = priced([first, *layers], Split()).samples_per_s
        for workers in (2, 8):
            faster = priced([first, *layers], Split(tensor=workers)).samples_per_s / one
            assert faster == pytest.approx(workers / (1 + (workers - 1) * tensor_ratio(layers[0], B)))
            assert faster == pytest.approx(workers / (1 + (workers - 1) / much), rel=1e-3)
            assert (faster > 1) == (much > 1)
            batch = round(much * paying_batch / workers)
            layers_of_batch = pairs(512, batch, 3)
            alone = priced(layers_of_batch, Split(), batch).samples_per_s
            faster = priced(layers_of_batch, Split(data=workers), batch).samples_per_s / alone
            assert faster == pytest.approx(workers / (1 + (workers - 1) / much), rel=1e-3)
            assert faster == pytest.approx(workers / (1 + (workers - 1) / workers * data_ratio(layers_of_batch, B)))
            assert (faster > 1) == (much > 1)


def test_replicas_are_ddp() -> None:
    """Layers that are ready when DDP's buckets are, under a drawn gradient, with nodes, hidden and not."""
    layers = [Layer(str(number), 0.01, 0.02, 1e6, 1e7) for number in range(10)]
    ready = tuple((1 / 3 + 2 / 3 * (number + 1) / 10, 1e7) for number in range(10))
    profile = Profile(Distribution("gamma", 0.3, 0.2), 32, 1e8, 1e8, ready=ready, update_s=0.01)
    for each in (profile, replace(profile, overlap=False), replace(profile, node=SharedNode(4, Link(0.0, 1e11)))):
        ddp = AllReduce().play(each, 8, ETHERNET, alone=False)
        data = price(layers, Split(data=8), each, ETHERNET)
        if each.overlap:
            assert 1 / data.seconds == pytest.approx(ddp.updates_per_s)
        assert data.samples_per_s == pytest.approx(8 * 32 / data.seconds)
    late_s = largest(profile.gradient_s, 8) + 0.01 + 2 * 7 / 8 * 1e8 / B
    assert price(layers, Split(data=8), replace(profile, overlap=False), ETHERNET).seconds == pytest.approx(late_s)


def test_bytes_of_each_split() -> None:
    """Of a pair 4 b d forward and, but for the first, backward, as a ring; parameters once, or three halves of it."""
    layers = pairs(256, 8, 4)
    nbytes, whole = layers[0].output_bytes, 4 * layers[0].parameter_bytes
    assert priced(layers, Split(tensor=4)).traffic == (Traffic(1.5 * 7 * nbytes, 0.0, 0.0, 0.0),)
    assert priced(layers, Split(data=4)).traffic == (Traffic(0.0, 0.0, 0.0, 1.5 * whole),)
    assert priced(layers, Split(shard=4)).traffic == (Traffic(0.0, 2.25 * whole, 0.0, 0.0),)
    both = priced(layers, Split(tensor=2, shard=2, data=2)).traffic
    assert both == (Traffic(7 * nbytes, 1.5 * whole / 2, 0.0, whole / 4),)
    stages = priced(layers, Split(stages=4, microbatches=4)).traffic
    assert [traffic.stages for traffic in stages] == [nbytes, 2 * nbytes, 2 * nbytes, nbytes]
    again = priced(layers, Split(tensor=4, recomputed=1)).traffic
    assert again == (Traffic(1.5 * (2 * 4 + 3) * nbytes, 0.0, 0.0, 0.0),)


def test_a_column_split_gathers_outputs_and_sums_shares_of_gradients() -> None:
    layers = [replace(layer, kind="column") for layer in pairs(256, 8, 3)]
    nbytes = layers[0].output_bytes
    split = priced(layers, Split(tensor=4))
    assert split.traffic[0].tensor == pytest.approx(0.75 * (3 + 2) * nbytes)
    whole_s = sum(layer.seconds for layer in layers)
    assert split.seconds == pytest.approx(whole_s / 4 + 0.75 * 5 * nbytes / B)


def test_memory_of_each_split() -> None:
    """Four pairs; Adam's state is twice the parameters. A pair keeps six outputs, of which one is what it received."""
    layers = pairs(256, 8, 4)
    whole, nbytes = 4 * layers[0].parameter_bytes, layers[0].output_bytes
    kept = 24 * nbytes
    assert priced(layers, Split(data=4)).memory == (WorkerMemory(whole, whole, 2 * whole, kept),)
    assert priced(layers, Split(shard=4)).memory == (WorkerMemory(whole / 4 + whole, whole / 4, whole / 2, kept),)
    divided = 3 * (5 / 2 + 1) * nbytes + 3 * nbytes  # nothing of the first is received from a layer
    assert priced(layers, Split(tensor=2)).memory == (WorkerMemory(whole / 2, whole / 2, whole, divided),)
    first, *_, last = priced(layers, Split(stages=4, microbatches=8)).memory
    assert first == WorkerMemory(whole / 4, whole / 4, whole / 2, 4 / 8 * kept / 4)
    assert last.activations == 1 / 8 * kept / 4
    gpipe = priced(layers, Split(stages=4, microbatches=8, schedule="gpipe")).memory
    assert [memory.activations for memory in gpipe] == [kept / 4] * 4
    assert priced(layers, Split(recomputed=1)).memory[0].activations == (3 + 6) * nbytes
    large = [replace(layer, parameter_bytes=1e8) for layer in layers]
    assert priced(large, Split(shard=4)).memory[0].parameters == 1e8 + 2e8, "two parts are whole"
    assert priced(large, Split(shard=4)).largest_memory == priced(large, Split(shard=4)).memory[0].whole


def test_a_pipeline_is_idle_for_its_bubble() -> None:
    layers = pairs(256, 8, 8)
    free = Network()
    for stages, microbatches in ((2, 1), (4, 8), (8, 8)):
        split = priced(layers, Split(stages=stages, microbatches=microbatches), network=free)
        assert split.idle == pytest.approx(bubble(stages, microbatches))
        assert split.idle_by_stage == pytest.approx([bubble(stages, microbatches)] * stages)
        assert (split.compute, split.tensor, split.exchange) == pytest.approx((1 - split.idle, 0, 0), abs=1e-9)


def test_stages_begin_only_where_layers_can_be_cut() -> None:
    layers = [replace(layer, cut=number % 2 == 0) for number, layer in enumerate(pairs(256, 8, 6))]
    with pytest.raises(TooFewLayersError, match="at most 3 stages"):
        priced(layers, Split(stages=4, microbatches=4))
    assert priced(layers, Split(stages=3, microbatches=4)).memory[0].parameters == 2 * layers[0].parameter_bytes


def test_shards_are_gathered_while_layers_before_them_compute() -> None:
    """Three halves of an all-reduce if nothing hides it; if all is hidden the first gather and the last reduction."""
    layers = [Layer(str(number), 1.0, 2.0, 0.0, 1e8) for number in range(4)]
    half_s = 0.75 * 1e8 / B
    profile = system(layers, 8)
    assert price(layers, Split(shard=4), profile, ETHERNET).seconds == pytest.approx(12 + 12 * half_s)
    hidden = price(layers, Split(shard=4), replace(profile, overlap=True), ETHERNET)
    assert hidden.seconds == pytest.approx(12 + 3 * half_s), "the backward pass gathers its first layer anew"
    short = [replace(layer, forward_s=0.0, backward_s=0.0) for layer in layers]
    assert price(short, Split(shard=4), replace(profile, overlap=True), ETHERNET).seconds == pytest.approx(12 * half_s)


def test_groups_that_share_a_node_s_link_divide_it() -> None:
    """Two nodes of four: a tensor split stays within, and its four groups of replicas send at the same time."""
    layers = pairs(256, 8, 4)
    whole, nbytes = 4 * layers[0].parameter_bytes, layers[0].output_bytes
    profile = replace(system(layers, 8), node=SharedNode(4, Link(0.0, 1e11)))
    compute_s = sum(layer.seconds for layer in layers) / 4
    split = price(layers, Split(tensor=4, data=2), profile, ETHERNET)
    assert split.seconds == pytest.approx(compute_s + 1.5 * 7 * nbytes / 1e11 + whole / 4 / (B / 4))
    two = price(layers, Split(stages=2, data=4, microbatches=1), profile, ETHERNET)
    sends_s = nbytes / (B / 4)
    assert two.seconds == pytest.approx(4 * compute_s + 2 * sends_s + 1.5 * whole / 2 / 1e11)


def test_microbatches_that_read_all_parameters_take_longer() -> None:
    """4 of them 1.6 times as long as the batch, 16 by the same line."""
    layers = pairs(256, 16, 4)
    profile = replace(system(layers, 16), microbatches={2: 1.2, 4: 1.6})
    free = Network()
    for count, factor in ((1, 1.0), (4, 1.6), (16, 4.0)):
        plain = price(layers, Split(stages=2, microbatches=count), replace(profile, microbatches={}), free).seconds
        slower = price(layers, Split(stages=2, microbatches=count), profile, free).seconds
        assert slower == pytest.approx(factor * plain)
    assert price(layers, Split(tensor=2), profile, free).seconds == pytest.approx(sum(x.seconds for x in layers) / 2)


def test_the_optimizer_updates_what_a_worker_holds() -> None:
    layers = pairs(256, 8, 4)
    profile = replace(system(layers, 8), update_s=0.4)
    one = sum(layer.seconds for layer in layers)
    free = Network()
    assert price(layers, Split(data=2), profile, free).seconds == pytest.approx(one + 0.4)
    assert price(layers, Split(shard=2), profile, free).seconds == pytest.approx(one + 0.2)
    assert price(layers, Split(tensor=4), profile, free).seconds == pytest.approx(one / 4 + 0.1)


def test_workers_of_one_machine_slow_each_other_down() -> None:
    layers = pairs(256, 8, 4)
    profile = replace(system(layers, 8), cores=2, slowdown={2: 1.5})
    one = sum(layer.seconds for layer in layers)
    assert price(layers, Split(tensor=2), profile, Network(), alone=True).seconds == pytest.approx(1.5 * one / 2)


def test_degrees_and_microbatches() -> None:
    assert sorted(factorizations(4, 2)) == [(1, 4), (2, 2), (4, 1)]
    assert len(set(factorizations(8, 4))) == 20
    assert microbatch_counts(48, 4) == [4, 8, 16, 24]
    assert microbatch_counts(7, 4) == [1, 7]
    assert (Split().words, Split(tensor=2, data=4).words) == ("1 worker", "tensor 2 x data 4")
    assert Split(stages=4, microbatches=8).words == "stages 4, 8 microbatches (1f1b)"
