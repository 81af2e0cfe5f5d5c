"""The grid of splits: brute force, what is struck out, what is said, and the command."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import yaml
from scalebook.training.cli.main import main as scalebook
from scalebook.training.engine.rules.clock_settings import Link
from scalebook.training.experiments.pipeline_order import Schedule
from scalebook.training.planner.split_grid import check_split, price_splits
from scalebook.training.planner.split_words import ASSUMED, LARGE, compared_words, split_lines
from scalebook.training.pricing.layers import Layer
from scalebook.training.pricing.links import NETWORKS, OWN, Network
from scalebook.training.pricing.profile import Profile, SharedNode, profile_mapping
from scalebook.training.pricing.splits import Split, price

SCHEDULES: tuple[Schedule, ...] = ("gpipe", "1f1b")
FAST = Network(Link(0.0, 1e11), Link(0.0, 1e11))


def system(**changes: Any) -> Profile:
    """Eight feed-forward pairs of 1 GB together, of 40 ms forward, behind an embedding; batches of 16."""
    layers = [
        Layer("embed", 0.0, 0.0, 4e6, 2e8, 4e6),
        *(Layer(f"pair.{n}", 0.005, 0.01, 4e6, 1e8, 3e7, "pair", 1024) for n in range(8)),
    ]
    profile = Profile(0.12, 16, 1e9, 1e9, state=2e9, layers=layers, overlap=False, title="pairs")
    return replace(profile, **changes)


def test_each_split_has_the_best_price_of_its_schedules() -> None:
    profile = system()
    answer = price_splits(profile, FAST, 8, "10gbe")
    degrees = {(point.tensor, point.shard, point.stages, point.data) for point in answer.points}
    assert len(degrees) == len(answer.points) == 19, "all 20 but for 2 x 2 x 2 of tensor, shard and stages"
    assert [split.words for split in answer.struck] == ["tensor 2 x shard 2 x stages 2"]
    for point in answer.points:
        degrees_of_it = point.tensor, point.shard, point.stages, point.data
        prices = [
            price(profile.layers, Split(*degrees_of_it, count, schedule), profile, FAST)
            for count in ([1] if point.stages == 1 else [1, 2, 4, 8, 16])
            for schedule in SCHEDULES
        ]
        best = max(each.samples_per_s for each in prices)
        assert point.samples_per_s >= 0.99 * best * (1 - 1e-9)
        assert point.samples == 16 * point.shard * point.data
        assert point.faster == pytest.approx(point.samples_per_s / answer.one_per_s)
        assert point.compute + point.sums + point.idle + point.exchange == pytest.approx(1)
        assert point.schedule == "gpipe" or point.stages == 1 or point.microbatches >= point.stages
    rates = [point.samples_per_s for point in answer.points]
    assert rates == sorted(rates, reverse=True)


def test_what_does_not_fit_is_struck_out_with_its_bytes() -> None:
    """One worker holds 1 + 1 + 2 GB and 244 MB; a half of it in two stages, or of all but the embedding by tensor."""
    one = 4e9 + 4e6 + 8 * 3e7
    answer = price_splits(system(memory=2.5e9), FAST, 2, "10gbe")
    assert answer.one_memory == one
    assert {point.words.partition(",")[0] for point in answer.points} == {"stages 2"}
    struck = {split.words: split for split in answer.struck}
    assert set(struck) == {"tensor 2", "shard 2", "data 2"}
    assert {split.cause for split in struck.values()} == {LARGE}
    assert struck["data 2"].memory == one
    assert struck["data 2"].recomputed == 4e9 + 8 * 4e6 + 3e7
    assert struck["tensor 2"].memory == 4 * (2e8 + 4e8) + 4e6 + 8 * (4e6 + 1.3e7)
    lines = split_lines(answer)
    assert "The model does not fit on one worker: it needs 4.24 GB, but a worker has 2.5 GB." in lines
    (line,) = [line for line in lines if line.startswith("Left out")]
    assert line.startswith(
        "Left out: 3 splits that would need more than the memory of a worker (2.5 GB). The split "
        "that needs the least memory is "
    )
    nothing = split_lines(price_splits(system(memory=1e9), FAST, 2, "10gbe"))
    assert "No split can be trained." in nothing


def test_one_worker_is_named_first_where_it_is_faster() -> None:
    lines = split_lines(price_splits(system(), NETWORKS["1gbe"], 2, "1gbe"))
    assert lines[0] == "The model split over 2 workers, 1 Gbit/s Ethernet"
    # 4 x 4 MB over 117.5 MB/s are 9.08 times the 15 ms of a pair; 2 x 1 GB, 142 times 120 ms of 16 samples
    assert lines[1] == (
        "On this link, a tensor split pays off from a width of 9,296 (F / 3 B for F flop/s and B bytes/s). pair.0 has "
        "a width of 1,024, so a tensor split does not pay off."
    )
    assert lines[2] == (
        "On this link, data-parallel training pays off from 2,270 samples per update (4 F / 3 B for F flop/s and B "
        "bytes/s, if no communication is hidden). 2 workers with 16 samples each have 32 samples per update, so "
        "data-parallel training does not pay off."
    )
    assert lines[3].startswith("Best of 4: stages 2, 16 microbatches (gpipe): ")
    assert "% of the time it waits for other stages (the bubble is 6% of the pipeline)" in lines[3]
    assert "with 16 samples per update" in lines[3]
    one_piece = [replace(layer, cut=False) for layer in system().layers]
    slow = split_lines(price_splits(system(layers=one_piece), NETWORKS["1gbe"], 2, "1gbe"))
    assert slow[3] == "One worker is faster: 133 samples/s."
    assert slow[4].startswith("Best of 3: ")
    assert lines[-3:] == [
        "The memory of a worker is not known (set profile.memory), so splits that need too much are not left out.",
        ASSUMED,
        compared_words(),
    ]
    assert compared_words().startswith("Expect the real samples/s to be 0.")
    fast = split_lines(price_splits(system(memory=1e10), FAST, 2, OWN))
    assert fast[0] == "The model split over 2 workers"
    assert fast[3].startswith("Best of 4: ")


def test_the_rule_is_by_the_link_that_is_used() -> None:
    """Within a node a tensor split has its link; replicas on several nodes have the one between."""
    profile = system(node=SharedNode(2, Link(0.0, 1e12)))
    tensor, data = price_splits(profile, NETWORKS["1gbe"], 4, "1gbe").rules
    assert "from a width of 1.09 (" in tensor
    assert "from 2,270 samples" in data
    assert (
        price_splits(profile, NETWORKS["1gbe"], 2, "1gbe")
        .rules[1]
        .startswith("On this link, data-parallel training pays off from 0.267 samples")
    )
    assert price_splits(profile, Network(), 4, OWN).rules == [tensor], "no limit, no rule"
    unknown = system(layers=[replace(layer, width=0) for layer in profile.layers])
    assert price_splits(unknown, NETWORKS["1gbe"], 2, "1gbe").rules[0] == (
        "A tensor split pays off if the all-reduces of a layer take less time than one worker needs to compute the "
        "layer. For pair.0, the ratio of these times is 9.08, so a tensor split does not pay off."
    )


def test_layers_that_cannot_be_divided_or_cut_are_a_cause() -> None:
    whole = system(layers=[Layer("a", 0.02, 0.04, 4e6, 5e8), Layer("b", 0.02, 0.04, 4e6, 5e8, cut=False)])
    causes = {split.words: split.cause for split in price_splits(whole, FAST, 2, "10gbe").struck}
    assert causes == {
        "tensor 2": "the model has no layer that a tensor split can divide (a pair or a column)",
        "stages 2": "the layers can be cut into at most 1 stage",
    }


@pytest.mark.parametrize(
    ("changes", "workers", "network", "message"),
    [
        ({"layers": ()}, 2, "10gbe", "profile.layers: is missing"),
        ({"sparse": True}, 2, "10gbe", "--split: would split a model with sparse tables"),
        ({"cores": 2}, 4, OWN, "--split: is 4, but this machine computes at most 2 gradients"),
    ],
)
def test_what_has_no_price_is_named_by_key(changes: dict[str, Any], workers: int, network: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_split(system(**changes), workers, network)
    check_split(system(cores=2), 2, OWN)
    check_split(system(cores=2), 4, "10gbe")


def test_the_command_prices_splits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, found = tmp_path / "p.yaml", tmp_path / "a.json"
    path.write_text(yaml.dump(profile_mapping(system(memory=4e9))))
    words = ["plan", "--profile", str(path), "--workers", "1,4", "--strategies", "ddp", "--links", "10gbe,100gbe"]
    assert scalebook([*words, "--split", "4", "--json", str(found)]) == 0
    printed = capsys.readouterr().out
    answer = json.loads(found.read_text())
    assert [(each["network"], each["workers"], each["limit"]) for each in answer["splits"]] == [
        ("10gbe", 4, 4e9), ("100gbe", 4, 4e9),
    ]  # fmt: skip
    best = answer["splits"][0]["points"][0]["words"]
    assert "The model split over 4 workers, 10 Gbit/s Ethernet\n" in printed
    assert f": {best}: " in printed
    assert ("data 4", LARGE) in [(split["words"], split["cause"]) for split in answer["splits"][0]["struck"]]
    assert scalebook(words) == 0
    assert "The model split over" not in capsys.readouterr().out
    assert scalebook([*words, "--split", "1"]) == 2
    assert "--split: is 1. Use at least 2." in capsys.readouterr().err
