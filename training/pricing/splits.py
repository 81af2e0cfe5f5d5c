"""One model split over several workers: what an update takes, what each worker sends and holds, in closed form.

`tensor`: each layer is divided, and its outputs are summed by an all-reduce (Shoeybi et al. 2019, Megatron-LM).
`shard`: each worker holds a share of parameters, gradients and optimizer state, and gathers layers when it needs them
(Rajbhandari et al. 2020, ZeRO; torch's FSDP2). `stages`: a pipeline of consecutive layers, played (`pipelines`).
`data`: replicas. Workers are numbered with tensor first, then shard, data and stages, so that a node joins those that
send most. Groups that share a node's link share its bandwidth; different collectives of one worker do not compete.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import add
from typing import Final, NamedTuple

from scalebook.training.engine.rules import Distribution, Link
from scalebook.training.experiments import pipeline_order
from scalebook.training.pricing.layers import Layer, blocks
from scalebook.training.pricing.links import Network
from scalebook.training.pricing.pipelines import PlayedPipeline, StageTimes, into_stages, play_pipeline
from scalebook.training.pricing.profile import Profile, mean_s
from scalebook.training.pricing.reductions import BUCKET_MB, FIRST_MB, all_reduce_s, largest

PART: Final = 1e6 * BUCKET_MB
"""Bytes from which consecutive layers are gathered, or reduced, together."""


@dataclass(frozen=True)
class Split:
    """`tensor` x `shard` x `stages` x `data` workers. `recomputed`: the first so many microbatches keep no activations,
    and are computed again before their backward pass."""

    tensor: int = 1
    shard: int = 1
    stages: int = 1
    data: int = 1
    microbatches: int = 1
    schedule: pipeline_order.Schedule = "1f1b"
    recomputed: int = 0

    @property
    def workers(self) -> int:
        return self.tensor * self.shard * self.stages * self.data

    @property
    def words(self) -> str:
        """`tensor 2 x data 4`; `1 worker`."""
        degrees = {"tensor": self.tensor, "shard": self.shard, "stages": self.stages, "data": self.data}
        text = " x ".join(f"{name} {degree}" for name, degree in degrees.items() if degree > 1) or "1 worker"
        return text if self.stages == 1 else f"{text}, {self.microbatches} microbatches ({self.schedule})"


@dataclass(frozen=True)
class WorkerMemory:
    """Bytes that a worker holds."""

    parameters: float
    gradients: float
    state: float
    activations: float

    @property
    def whole(self) -> float:
        return self.parameters + self.gradients + self.state + self.activations


@dataclass(frozen=True)
class Traffic:
    """Bytes that a worker sends in an update, by what they are for; all-reduces as rings."""

    tensor: float
    shard: float
    stages: float
    data: float

    @property
    def whole(self) -> float:
        return self.tensor + self.shard + self.stages + self.data


@dataclass(frozen=True)
class Price:
    """A split's update. `compute`, `tensor`, `idle`, `exchange`: shares of its seconds, as the mean over all workers: a
    worker computes and updates, sums a tensor split's outputs, waits for other stages, or for parameters and gradients.
    `idle_by_stage`: of the pipeline alone. `traffic`, `memory`: of a worker of each stage."""

    split: Split
    seconds: float
    samples_per_s: float
    compute: float
    tensor: float
    idle: float
    exchange: float
    idle_by_stage: tuple[float, ...]
    traffic: tuple[Traffic, ...]
    memory: tuple[WorkerMemory, ...]

    @property
    def largest_memory(self) -> float:
        """Bytes of the worker that holds most."""
        return max(memory.whole for memory in self.memory)


class _Part(NamedTuple):
    """What is gathered, and reduced, at a time."""

    forward_s: float = 0.0
    backward_s: float = 0.0
    nbytes: float = 0.0


class TooFewLayersError(ValueError):
    """The layers cannot be cut into so many stages; `most` is how many they make."""

    def __init__(self, most: int) -> None:
        super().__init__(f"the layers make at most {most} stages")
        self.most = most


# --- the two-number rule ---------------------------------------------------------------------------------------------


def data_ratio(layers: Sequence[Layer], bandwidth: float) -> float:
    """The x of N data-parallel workers, which are N / (1 + (N - 1) x) times as fast as one, where each has one batch of
    N: seconds of all parameters' all-reduce by a great many workers, over those of a gradient on one."""
    return 2 * sum(layer.parameter_bytes for layer in layers) / bandwidth / sum(layer.seconds for layer in layers)


def tensor_ratio(layer: Layer, bandwidth: float) -> float:
    """The x of K workers that split a layer by tensor, which are K / (1 + (K - 1) x) times as fast as one, so at most
    1 / x: seconds of both all-reduces over those of the layer."""
    return 4 * layer.output_bytes / bandwidth / layer.seconds


# --- prices ----------------------------------------------------------------------------------------------------------


def price(layers: Sequence[Layer], split: Split, profile: Profile, network: Network, alone: bool = False) -> Price:
    """Of one split in steady state. Each data-parallel and sharded group of workers takes a batch of the profile's.
    `alone`: on one machine, where workers slow each other down as if all computed at once. TooFewLayersError if the
    stages are more than the layers make."""
    return SplitPricing(layers, split, profile, network, alone).price()


class SplitPricing:
    """The parts of a price."""

    def __init__(
        self, layers: Sequence[Layer], split: Split, profile: Profile, network: Network, alone: bool = False
    ) -> None:
        self._split, self._profile, self._network = split, profile, network
        slow = profile.shared_by(split.workers) if alone else profile
        last_s = largest(slow.gradient_s, split.workers, list(slow.stragglers.values()))
        self._last = last_s / profile.gradient_mean_s
        self._longer = profile.in_microbatches(split.microbatches)
        self._update_s = slow.update_s
        self._whole = sum(layer.parameter_bytes for layer in layers) or 1.0
        layers = [replace(layer) for layer in layers]  # layers alike are told apart by identity
        self._before = {id(layer): before for layer, before in zip(layers, [None, *layers], strict=False)}
        seconds = [
            self._last * sum(self._computes_s(layer)) + sum(self._sums_s(layer)) + self._layer_updates_s(layer)
            for layer in layers
        ]
        self._stages = into_stages(layers, seconds, split.stages)
        if not self._stages:
            raise TooFewLayersError(len(blocks(layers)))

    def price(self) -> Price:
        """In steady state, each worker as slow as the slowest is on average."""
        split, count = self._split, self._split.stages
        again = split.recomputed
        compute_s = [self._last * self._repeated_s(layers, self._computes_s, again) for layers in self._stages]
        sums_s = [self._repeated_s(layers, self._sums_s, again) for layers in self._stages]
        played = self._pipeline()
        done_s = self._ends(played)
        whole_s = max(map(add, done_s, self._all_updates_s))
        own_s = [sum(parts) for parts in zip(compute_s, sums_s, self._all_updates_s, strict=True)]
        exchange_s = [whole_s - own_s[0]]
        if count > 1:
            exchange_s = [done - last[1] for done, last in zip(done_s, played.last_s, strict=True)]
        exchange, sums = (sum(each) / count / whole_s for each in (exchange_s, sums_s))
        return Price(
            split,
            whole_s,
            split.data * split.shard * self._profile.batch_size / whole_s,
            sum(own_s) / count / whole_s - sums,
            sums,
            max(0.0, 1 - exchange - sum(own_s) / count / whole_s),
            exchange,
            played.idle,
            tuple(map(self._traffic, range(count))),
            tuple(map(self._memory, range(count))),
        )

    @property
    def _all_updates_s(self) -> list[float]:
        """Of a worker of each stage, seconds of the optimizer's step."""
        return list(map(self._updates_s, range(self._split.stages)))

    def _pipeline(self) -> PlayedPipeline:
        """The pipeline of one replica."""
        split, stages = self._split, list(map(self._stage, range(self._split.stages)))
        return play_pipeline(stages, split.microbatches, split.schedule, split.recomputed)

    def _ends(self, played: PlayedPipeline) -> list[float]:
        """When each stage has its gradients."""
        if self._split.stages == 1 and self._split.shard > 1:
            return [self._sharded_s(self._stages[0])]
        gathered_s = max(map(self._gather_s, self._stages)) if self._split.shard > 1 else 0.0
        return [
            gathered_s + max(last[1], self._reduced_s(layers, *last))
            for layers, last in zip(self._stages, played.last_s, strict=True)
        ]

    # seconds

    def _computes_s(self, layer: Layer) -> tuple[float, float]:
        """Seconds of a worker's part of a layer, forward and backward, for all microbatches."""
        factor = self._longer / self._parts(layer)
        return layer.forward_s * factor, layer.backward_s * factor

    def _sums_s(self, layer: Layer) -> tuple[float, float]:
        """Seconds of a tensor split's collectives after the layer, and on the way back before it."""
        degree, each = self._split.tensor, self._split.microbatches
        forward, backward = self._summed(layer)
        forward_s, backward_s = (
            share * each * self._collective_s(nbytes / each, degree, 1) for share, nbytes in (forward, backward)
        )
        return forward_s, backward_s

    def _summed(self, layer: Layer) -> tuple[tuple[float, float], tuple[float, float]]:
        """The share of an all-reduce that is made, and its bytes, forward and backward. A gather is half of one, and so
        is the sum of gradients of which each worker needs its own part."""
        before = self._before[id(layer)]
        received = before.output_bytes if before is not None else 0.0
        if not layer.is_divided or self._split.tensor == 1:
            return (0.0, 0.0), (0.0, 0.0)
        if layer.kind == "pair":
            return (1.0, layer.output_bytes), (1.0, received)
        own_part = before is not None and before.kind == "column"
        return (0.5, layer.output_bytes), (0.5 if own_part else 1.0, received)

    def _repeated_s(
        self, layers: Sequence[Layer], seconds: Callable[[Layer], tuple[float, float]], again: int
    ) -> float:
        """Of a stage, with the forward pass of `again` microbatches twice."""
        both = [seconds(layer) for layer in layers]
        share = again / self._split.microbatches
        return sum((1 + share) * forward_s + backward_s for forward_s, backward_s in both)

    def _stage(self, place: int) -> StageTimes:
        layers, each = self._stages[place], self._split.microbatches
        forward_s, backward_s = (sum(self._way_s(layer, way) for layer in layers) / each for way in (0, 1))
        if place == self._split.stages - 1:
            return StageTimes(forward_s, backward_s)
        link = self._link_after(place)
        speed = bytes_a_second(link)
        sends_s = 0.0 if speed is None else layers[-1].output_bytes / each / speed
        return StageTimes(forward_s, backward_s, sends_s, mean_s(link.latency_s))

    def _link_after(self, place: int) -> Link:
        """The slowest link between a stage's workers and those of the next."""
        apart, node = self._split.workers // self._split.stages, self._profile.node
        if node is None:
            return self._network.link
        first = place * apart
        crosses = any((first + rank) // node.workers != (first + rank + apart) // node.workers for rank in range(apart))
        return _divided(self._network.link, min(apart, node.workers)) if crosses else node.link

    def _collective_s(self, nbytes: float, members: int, apart: int) -> float:
        """An all-reduce by workers that are `apart` in number, beside those of the workers between them."""
        if members == 1 or not nbytes:
            return 0.0
        node = self._profile.node
        if node is None:
            return all_reduce_s(nbytes, members, self._network.link, self._profile)
        link = _divided(self._network.link, min(apart, node.workers))
        inside = replace(self._profile, node=replace(node, workers=max(1, node.workers // apart)))
        return all_reduce_s(nbytes, members, link, inside)

    def _gather_s(self, layers: Sequence[Layer]) -> float:
        """Gathering all of a stage's parameters, part by part."""
        return sum(self._shared_s(part.nbytes) for part in self._in_parts(layers))

    def _shared_s(self, nbytes: float) -> float:
        """A gather of sharded parameters, or the sum of gradients of which each keeps its share."""
        return self._collective_s(nbytes, self._split.shard, self._split.tensor) / 2

    def _replicas_s(self, nbytes: float) -> float:
        """The all-reduce between replicas, of the shares that each worker has."""
        split = self._split
        return self._collective_s(nbytes / split.shard, split.data, split.tensor * split.shard)

    def _reduced_s(self, layers: Sequence[Layer], begun_s: float, end_s: float) -> float:
        """When the last gradient of a stage is reduced. Its last backward pass lasts from `begun_s` to `end_s`, and a
        bucket travels as soon as its layers are done."""
        free_s, done, whole = 0.0, 0.0, sum(self._way_s(layer, 1) for layer in layers)
        size, limit = 0.0, 1e6 * FIRST_MB
        for place, layer in enumerate(reversed(layers)):
            done += self._way_s(layer, 1)
            size += layer.held(self._split.tensor)
            if size and (size >= limit or place == len(layers) - 1):
                ready_s = begun_s + (end_s - begun_s) * (done / whole if whole else 1.0)
                took_s = (self._shared_s(size) if self._split.shard > 1 else 0.0) + self._replicas_s(size)
                free_s = max(free_s, ready_s if self._profile.overlap else end_s) + took_s
                size, limit = 0.0, PART
        return free_s

    def _way_s(self, layer: Layer, way: int) -> float:
        """Of a layer in one direction: computing, by workers as slow as the slowest, and summing."""
        return self._last * self._computes_s(layer)[way] + self._sums_s(layer)[way]

    def _sharded_s(self, layers: Sequence[Layer]) -> float:
        """One line carries gathers and reductions; a part's gather is under way while the part before it computes. An
        update waits for the last reduction."""
        parts = list(self._in_parts(layers))
        overlap, again = self._profile.overlap, self._split.recomputed > 0
        line_s = now_s = 0.0
        for backward in (False, True):
            turn = parts[::-1] if backward else parts
            gathers_s = [self._shared_s(part.nbytes) for part in turn] + [0.0]
            line_s = max(line_s, now_s) + gathers_s[0]
            there_s = line_s
            for part, following in zip(turn, gathers_s[1:], strict=True):
                begun_s = max(now_s, there_s)
                took_s = part.backward_s + (part.forward_s if again else 0.0) if backward else part.forward_s
                now_s = begun_s + took_s
                reduction = self._shared_s(part.nbytes) + self._replicas_s(part.nbytes) if backward else 0.0
                if overlap:
                    line_s = there_s = max(line_s, begun_s) + following
                    line_s = max(line_s, now_s) + reduction if reduction else line_s
                else:
                    line_s = there_s = max(line_s, now_s) + reduction + following
        return max(now_s, line_s)

    def _in_parts(self, layers: Sequence[Layer]) -> Iterator[_Part]:
        """Layers that are gathered together: consecutive ones of enough bytes."""
        part = _Part()
        for place, layer in enumerate(layers):
            part = _Part(
                part.forward_s + self._way_s(layer, 0),
                part.backward_s + self._way_s(layer, 1),
                part.nbytes + layer.held(self._split.tensor),
            )
            if part.nbytes >= PART or place == len(layers) - 1:
                yield part
                part = _Part()

    def _updates_s(self, place: int) -> float:
        """The optimizer's seconds for the parameters that a worker of a stage holds."""
        return sum(map(self._layer_updates_s, self._stages[place]))

    def _layer_updates_s(self, layer: Layer) -> float:
        share = layer.held(self._split.tensor) / self._split.shard
        return self._update_s * share / self._whole

    # bytes

    def _parts(self, layer: Layer) -> int:
        """Into how many parts a layer's work and parameters are divided."""
        return self._split.tensor if layer.is_divided else 1

    def _held(self, place: int) -> float:
        """Bytes of a stage's parameters that a tensor split leaves to each worker, before they are sharded."""
        return sum(layer.held(self._split.tensor) for layer in self._stages[place])

    def _traffic(self, place: int) -> Traffic:
        split, layers, held = self._split, self._stages[place], self._held(place)
        again = 1 + split.recomputed / split.microbatches
        summed = [self._summed(layer) for layer in layers]
        sums = sum(again * ahead[0] * ahead[1] + back[0] * back[1] for ahead, back in summed)
        before = self._before[id(layers[0])]
        crossing = 0.0 if place == split.stages - 1 else layers[-1].output_bytes
        crossing += before.output_bytes if place and before is not None else 0.0
        return Traffic(
            _ring(split.tensor) * sums,
            _ring(split.shard) / 2 * (3 if split.stages == 1 else 2) * held,
            crossing,
            _ring(split.data) * held / split.shard,
        )

    def _memory(self, place: int) -> WorkerMemory:
        """In a pipeline a stage keeps its parameters gathered, and sums up its gradients whole, from microbatch to
        microbatch: there shards divide the optimizer's state alone."""
        split, layers, held = self._split, self._stages[place], self._held(place)
        divided = split.shard if split.stages == 1 else 1
        gathered = 0.0
        if divided > 1:
            gathered = min(sum(sorted((part.nbytes for part in self._in_parts(layers)), reverse=True)[:2]), held)
        state = self._profile.state * held / self._whole / split.shard
        return WorkerMemory(held / divided + gathered, held / divided, state, self._activations(place))

    def _activations(self, place: int) -> float:
        """A layer that is computed again keeps what it receives; of those the largest is whole for a while."""
        split, layers = self._split, self._stages[place]
        many = pipeline_order.under_way(split.schedule, place, split.stages, split.microbatches)
        saved = [self._saved(layer) / split.microbatches for layer in layers]
        if not split.recomputed:
            return many * sum(saved)
        received = sum(self._received(layer) for layer in layers) / split.microbatches
        return many * received + max(saved)

    def _received(self, layer: Layer) -> float:
        """Bytes of what is kept that no split divides: a layer's input, if each worker has all of it."""
        before = self._before[id(layer)]
        return min(layer.saved_bytes, before.output_bytes if before is not None else 0.0)

    def _saved(self, layer: Layer) -> float:
        received = self._received(layer)
        return received + (layer.saved_bytes - received) / self._parts(layer)


def _ring(members: int) -> float:
    """Of the bytes of an all-reduce, what each sends."""
    return 2 * (members - 1) / members


def _divided(link: Link, many: int) -> Link:
    """A link that so many use at the same time."""
    speed = bytes_a_second(link)
    return link if speed is None else replace(link, bandwidth=speed / many)


def bytes_a_second(link: Link) -> float | None:
    """Of a link of a profile; None: no limit."""
    assert not isinstance(link.bandwidth, Distribution), "a profile's are numbers"
    return link.bandwidth


def factorizations(number: int, factors: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a product of so many factors, in order."""
    if factors == 1:
        yield (number,)
        return
    for first in range(1, number + 1):
        if number % first == 0:
            for others in factorizations(number // first, factors - 1):
                yield (first, *others)


def microbatch_counts(batch: int, stages: int) -> list[int]:
    """Numbers of microbatches that divide a batch evenly, near one, two, four and eight times the stages."""
    divisors = [count for count in range(1, batch + 1) if batch % count == 0]
    return sorted({max(count for count in divisors if count <= factor * stages) for factor in (1, 2, 4, 8)})
