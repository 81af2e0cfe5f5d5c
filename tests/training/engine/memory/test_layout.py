from itertools import combinations, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scalebook.training.engine.memory.layout import ALIGNMENT, lay_out, split_into_shards


def test_fields_are_aligned_and_do_not_overlap() -> None:
    named = [("a", torch.zeros(3, 5)), ("b", torch.zeros((), dtype=torch.float64)), ("c", torch.zeros(7).bfloat16())]
    layout = lay_out(named, start=10)
    assert [f.offset % ALIGNMENT for f in layout.fields] == [0, 0, 0]
    assert [f.offset for f in layout.fields] == [64, 128, 192]
    assert layout.nbytes == 256


def test_views_share_the_buffer_and_keep_type_and_memory_format() -> None:
    image = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    layout = lay_out([("w", torch.zeros(4, 6)), ("image", image), ("gap", torch.zeros(4, 6)[:, ::2])])
    buffer = torch.zeros(layout.nbytes, dtype=torch.uint8)
    weight, picture, gap = layout.views(buffer)
    weight.fill_(1.0)
    assert int(buffer.count_nonzero()) == 2 * 24  # 1.0 has two bytes that are not zero
    assert picture.is_contiguous(memory_format=torch.channels_last)
    assert gap.is_contiguous()
    assert weight.dtype == torch.float32


def best_largest_run(sizes: list[int], shards: int) -> int:
    borders = ([0, *inner, len(sizes)] for inner in combinations(range(1, len(sizes)), shards - 1))
    return min(max(sum(sizes[a:b]) for a, b in pairwise(cuts)) for cuts in borders)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.data())
def test_a_cut_keeps_the_order_and_is_as_even_as_borders_allow(sizes: list[int], data: st.DataObject) -> None:
    shards = data.draw(st.integers(1, len(sizes)))
    named = [(str(i), torch.zeros(size, dtype=torch.uint8)) for i, size in enumerate(sizes)]
    runs = split_into_shards(named, shards)
    assert [name for run in runs for name, _ in run] == [name for name, _ in named]
    assert len(runs) == shards
    assert all(runs)
    assert max(sum(t.numel() for _, t in run) for run in runs) == best_largest_run(sizes, shards)


def test_more_shards_than_parameters_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="shards: is 3, but there are only 2 parameters"):
        split_into_shards([("a", torch.zeros(1)), ("b", torch.zeros(1))], 3)
