"""Layers as a person writes them, and back."""

from typing import Any

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.pricing.layers import Layer, blocks, read_layers, written_layers
from scalebook.training.pricing.profile import profile_mapping, read_profile

WRITTEN: list[dict[str, Any]] = [
    {"name": "embed", "forward": "1 ms", "output": "2 MB", "parameters": "80 MB"},
    {"name": "block", "forward": 0.004, "backward": 0.009, "output": "2 MB", "parameters": "25 MB", "saved": "12 MB",
     "kind": "pair", "width": 512, "count": 2},
    {"name": "head", "forward": "1 ms", "output": "4 MB", "cut": False},
]  # fmt: skip


def test_layers_are_read_and_written() -> None:
    embed, first, second, head = layers = read_layers(WRITTEN, 0.032)
    assert embed == Layer("embed", 0.001, 0.002, 2e6, 8e7, 2e6), "backward takes twice as long, outputs are kept"
    assert first == second == Layer("block", 0.004, 0.009, 2e6, 2.5e7, 1.2e7, "pair", 512)
    assert first.seconds == pytest.approx(0.013)
    assert not head.cut
    assert read_layers(written_layers(layers), 0.032) == layers
    assert [len(block) for block in blocks(layers)] == [1, 1, 2]


def test_operations_share_the_gradient_s_seconds() -> None:
    layers = read_layers([{"flops": 3e9, "count": 2}, {"flops": 6e9}], 0.12)
    assert [layer.forward_s for layer in layers] == pytest.approx([0.01, 0.01, 0.02])
    assert sum(layer.seconds for layer in layers) == pytest.approx(0.12)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("a", "profile.layers: is 'a'"),
        ([{"name": "a"}], "profile.layers.0.forward: has no seconds"),
        ([{"forward": 1, "flops": 1}], "profile.layers.0.forward: has both"),
        ([{"forward": 1}, {"flops": 1}], "profile.layers: has flops for some"),
        ([{"flops": 0}], "profile.layers.flops: are 0"),
        ([{"flops": "many"}], "profile.layers.flops: is 'many'"),
        ([{"forward": 1, "colour": 2}], "profile.layers.0.colour: unknown key"),
        ([{"forward": 1, "kind": "conv"}], "profile.layers.kind: is 'conv'"),
        ([{"forward": 1, "count": 0}], "profile.layers.0.count: is 0"),
        ([{"forward": 1, "width": "wide"}], "profile.layers.width: is 'wide'"),
        ([{"forward": 1, "cut": 1}], "profile.layers.cut: is 1"),
        ([{"forward": "1 MB"}], "profile.layers.forward: is '1 MB'"),
    ],
)
def test_a_mistake_is_named(written: object, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_layers(written, 1.0)
    assert str(error.value).startswith(message)


def test_a_profile_has_layers_and_a_worker_s_memory() -> None:
    raw = {"gradient": "32 ms", "parameters": "130 MB", "memory": "16 GB", "layers": WRITTEN}
    profile = read_profile(raw)
    assert profile.layers == read_layers(WRITTEN, 0.032)
    assert profile.memory == 16e9
    assert read_profile(profile_mapping(profile)) == profile
    assert read_profile({"gradient": 1, "parameters": 1}).layers == ()
    with pytest.raises(
        ConfigError,
        match=r"profile\.layers: take 0\.032 s together, but a gradient takes 0\.05 s\. "
        r"Set",
    ):
        read_profile({**raw, "gradient": "50 ms"})


def test_a_profile_says_how_much_longer_microbatches_take() -> None:
    raw = {"gradient": 1, "parameters": 1, "microbatches": {4: 1.6, 2: 1.2}}
    profile = read_profile(raw)
    assert [profile.in_microbatches(count) for count in (1, 2, 3, 4, 6)] == pytest.approx([1, 1.2, 1.4, 1.6, 2.0])
    assert read_profile({"gradient": 1, "parameters": 1}).in_microbatches(8) == 1
    assert read_profile(profile_mapping(profile)) == profile
    with pytest.raises(ConfigError, match=r"profile\.microbatches\.1: is not 2 or more"):
        read_profile({**raw, "microbatches": {1: 1.0}})
    with pytest.raises(ConfigError, match=r"profile\.microbatches\.2"):
        read_profile({**raw, "microbatches": {2: 0.5}})
