"""Every split of a model over N workers, priced: which can be trained, which are fastest, and what limits them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from scalebook.training.base import ConfigError
from scalebook.training.planner.all_reduce import AllReduce
from scalebook.training.planner.answering import Setting
from scalebook.training.planner.answers import SplitAnswer, SplitPoint, StruckSplit
from scalebook.training.planner.question import Question
from scalebook.training.planner.split_words import LARGE, three
from scalebook.training.pricing import (
    Layer,
    Price,
    Profile,
    Split,
    TooFewLayersError,
    bubble,
    bytes_a_second,
    data_ratio,
    factorizations,
    links,
    microbatch_counts,
    price,
    tensor_ratio,
    workers_words,
)

OPTION: Final = "--split"
AS_FAST: Final = 0.99
"""Of two splits that differ by less, the one with less memory is named first."""


def check_split(profile: Profile, workers: int, network: str) -> None:
    """ConfigError, naming key and remedy, for what has no price."""
    if profile.sparse:
        why = "would split a model with sparse tables, but only shards of a parameter server can divide such tables"
        raise ConfigError(OPTION, why, "Remove it, and plan with --shards.")
    if not profile.layers:
        fix = "Set layers: [{name: a, forward: 3 ms, output: 1 MB, parameters: 4 MB}, ...] (docs/concepts/planner.md)."
        raise ConfigError("profile.layers", "is missing, and a split cannot be estimated without the layers", fix)
    if network == links.OWN and profile.cores is not None and workers > profile.cores:
        why = f"is {workers}, but this machine computes at most {profile.cores} gradients at the same time"
        raise ConfigError(OPTION, why, f"Use {OPTION} {profile.cores}, or name a network, for example --links 10gbe.")


def splits_of(profile: Profile, question: Question, workers: int) -> list[SplitAnswer]:
    """The model split over so many workers, on each network of the question; nothing for 0. ConfigError for what has no
    price."""
    if not workers:
        return []
    settings = [Setting.of(profile, question, AllReduce(), 1, network) for network in question.networks]
    return [price_splits(each.profile, each.joined, workers, each.network) for each in settings]


def price_splits(profile: Profile, joined: links.Network, workers: int, network: str) -> SplitAnswer:
    """All of them, on one network. ConfigError for what has no price."""
    check_split(profile, workers, network)
    alone = network == links.OWN

    def priced(split: Split) -> Price:
        return price(profile.layers, split, profile, joined, alone)

    one, points, struck = priced(Split()), [], []
    for tensor, shard, stages, data in factorizations(workers, 4):
        split = Split(tensor, shard, stages, data)
        if cause := _impossible(split, profile):
            struck.append(StruckSplit(_degrees(split), cause))
            continue
        try:
            prices = [priced(each) for each in _scheduled(split, profile.batch_size)]
        except TooFewLayersError as error:
            most = f"{error.most} stage{'s' * (error.most > 1)}"
            struck.append(StruckSplit(_degrees(split), f"the layers can be cut into at most {most}"))
            continue
        fitting = [each for each in prices if not profile.memory or each.largest_memory <= profile.memory]
        if not fitting:
            struck.append(_too_large(prices, priced))
            continue
        points.append(_point(_best(fitting), one, profile.batch_size))
    points.sort(key=lambda point: -point.samples_per_s)
    return SplitAnswer(
        workers,
        network,
        one.samples_per_s,
        one.largest_memory,
        profile.memory,
        list(_rules(profile, joined, workers)),
        points,
        struck,
    )


def _impossible(split: Split, profile: Profile) -> str:
    """Why a split cannot be trained, but for its memory; else ""."""
    if all(degree > 1 for degree in (split.tensor, split.shard, split.stages)):
        return "tensor, shard and stages cannot be combined"
    if split.tensor > 1 and all(layer.kind == "whole" for layer in profile.layers):
        return "the model has no layer that a tensor split can divide (a pair or a column)"
    return ""


def _scheduled(split: Split, batch: int) -> Iterator[Split]:
    """With each number of microbatches and each schedule; `1f1b` needs as many microbatches as stages."""
    if split.stages == 1:
        yield split
        return
    degrees = split.tensor, split.shard, split.stages, split.data
    for count in microbatch_counts(batch, split.stages):
        yield Split(*degrees, count, "gpipe")
        if count >= split.stages:
            yield Split(*degrees, count, "1f1b")


def _best(prices: Sequence[Price]) -> Price:
    """The fastest; of those as fast, the one whose workers hold least."""
    most = max(each.samples_per_s for each in prices)
    return min((each for each in prices if each.samples_per_s >= AS_FAST * most), key=lambda each: each.largest_memory)


def _too_large(prices: Sequence[Price], priced: Callable[[Split], Price]) -> StruckSplit:
    """A split of which each schedule holds more than a worker can."""
    least = min(prices, key=lambda each: each.largest_memory)
    again = priced(replace(least.split, recomputed=least.split.microbatches)).largest_memory
    return StruckSplit(_degrees(least.split), LARGE, least.largest_memory, min(again, least.largest_memory))


def _point(best: Price, one: Price, batch: int) -> SplitPoint:
    split = best.split
    sent = max(each.whole for each in best.traffic)
    return SplitPoint(
        split.words,
        split.tensor,
        split.shard,
        split.stages,
        split.data,
        split.microbatches,
        split.schedule,
        batch * split.shard * split.data,
        best.seconds,
        best.samples_per_s,
        best.samples_per_s / one.samples_per_s,
        best.compute,
        best.tensor,
        best.idle,
        best.exchange,
        bubble(split.stages, split.microbatches),
        best.largest_memory,
        sent,
    )


def _degrees(split: Split) -> str:
    """Without microbatches and schedule."""
    return split.words.partition(",")[0]


# --- from where on a split pays --------------------------------------------------------------------------------------


def _rules(profile: Profile, joined: links.Network, workers: int) -> Iterator[str]:
    """The two numbers of the machine: by what is measured, for the model's own layers."""
    node = profile.node if profile.node is not None and profile.node.workers > 1 else None
    within = node.link if node is not None else joined.link
    between = within if node is not None and workers <= node.workers else joined.link
    if (speed := bytes_a_second(within)) is not None:
        yield from _tensor_rule([layer for layer in profile.layers if layer.kind == "pair" and layer.seconds], speed)
    if (speed := bytes_a_second(between)) is not None:
        least, there = profile.batch_size * data_ratio(profile.layers, speed), workers * profile.batch_size
        yield (
            f"On this link, data-parallel training pays off from {three(least)} samples per update (4 F / 3 B for F "
            f"flop/s and B bytes/s, if no communication is hidden). {workers_words(workers)} with "
            f"{profile.batch_size:,} samples each have {there:,} samples per update, so data-parallel training "
            f"{_pays(there > least)}."
        )


def _tensor_rule(pairs: Sequence[Layer], speed: float) -> Iterator[str]:
    if not pairs:
        return
    best = min(pairs, key=lambda layer: tensor_ratio(layer, speed))
    ratio = tensor_ratio(best, speed)
    if best.width:
        yield (
            f"On this link, a tensor split pays off from a width of {three(best.width * ratio)} (F / 3 B for F flop/s "
            f"and B bytes/s). {best.name} has a width of {best.width:,}, so a tensor split {_pays(ratio < 1)}."
        )
    else:
        yield (
            "A tensor split pays off if the all-reduces of a layer take less time than one worker needs to compute the "
            f"layer. For {best.name}, the ratio of these times is {three(ratio)}, so a tensor split "
            f"{_pays(ratio < 1)}."
        )


def _pays(is_so: bool) -> str:
    return "pays off" if is_so else "does not pay off"
