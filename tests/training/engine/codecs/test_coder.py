"""Every codec through its one contract: what comes back, how large a frame is, what is refused."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from typing_extensions import override

from scalebook.training.engine.codecs.coder import Coder, Spec
from scalebook.training.engine.codecs.kernels import KERNELS, FrameError, Kernel, finite, generator
from scalebook.training.engine.rules.codecs import (
    CODECS,
    HEADER,
    Bf16,
    Codec,
    Fp16,
    Fp32,
    Int8,
    Part,
    PowerSgd,
    Qsgd,
    RandomK,
    Shape,
    Sign,
    TopK,
    numel,
)

SHAPES = [(), (1,), (0, 3), (7, 5), (3, 2, 3, 3), (40, 30)]
EVERY = [
    *(codec() for codec in CODECS.values()),
    *(codec(zstd=3) for codec in (Fp32, Bf16, Int8, TopK)),
    Bf16(error_feedback=True), Fp16(error_feedback=True), Int8(64, error_feedback=False), Qsgd(1, 64),
    Qsgd(7, 64, True), TopK(0.3, error_feedback=False), RandomK(0.3, error_feedback=False),
    PowerSgd(1, error_feedback=False),
]  # fmt: skip
FED_BACK = [
    Bf16(error_feedback=True), Fp16(error_feedback=True), Int8(64), Sign(64), Qsgd(7, 64, error_feedback=True),
    TopK(0.05), RandomK(0.05, zstd=1), PowerSgd(1),
]  # fmt: skip


def coder(codec: Codec, shapes: Sequence[Shape] = SHAPES, dtype: torch.dtype = torch.float32) -> Coder:
    return Coder(codec, [Spec(shape, dtype) for shape in shapes])


def first(of: Coder) -> Tensor | None:
    return torch.zeros(of.kept) if of.kept else None


def drawn(seed: int, shapes: Sequence[Shape] = SHAPES) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=random) for shape in shapes]


def flat(tensors: Sequence[Tensor | None]) -> Tensor:
    return torch.cat([tensor.detach().double().flatten() for tensor in tensors if tensor is not None])


@pytest.mark.parametrize("codec", EVERY, ids=repr)
def test_shapes_types_and_bytes_are_as_declared(codec: Codec) -> None:
    both, tensors = coder(codec), drawn(1)
    frame, residual = both.encode(tensors, first(both), draw=7)
    decoded = both.decode(frame)
    assert [tensor.shape for tensor in decoded if tensor is not None] == [tensor.shape for tensor in tensors]
    assert {tensor.dtype for tensor in decoded if tensor is not None} == {torch.float32}
    most = both.nbytes()
    assert frame.numel() == most or (codec.zstd and frame.numel() < most)
    if codec.codes and not codec.exact:
        assert codec.nbytes(SHAPES) == most
    assert (residual is not None) == codec.error_feedback
    into = torch.full((sum(math.prod(shape) for shape in SHAPES),), math.nan)
    assert torch.equal(flat(both.decode(frame, into)), flat(decoded))
    if codec.exact:
        assert torch.equal(flat(decoded), flat(tensors))


@pytest.mark.parametrize("codec", EVERY, ids=repr)
def test_a_push_may_have_no_gradient_at_all(codec: Codec) -> None:
    """As of a shard whose layers a batch does not use: nothing is decoded, and nothing more or less is owed."""
    of, nothing = coder(codec), [None] * len(SHAPES)
    owed = of.encode(drawn(1), first(of)).residual
    frame, after = of.encode(nothing, owed, into=first(of))
    assert of.decode(frame) == nothing
    assert frame.numel() == of.nbytes([False] * len(SHAPES))
    assert after is None if owed is None else after is not None and torch.equal(after, owed)


@pytest.mark.parametrize("codec", EVERY, ids=repr)
def test_equal_arguments_give_equal_bytes_and_change_nothing(codec: Codec) -> None:
    tensors = drawn(2)
    before, one, other = [tensor.clone() for tensor in tensors], coder(codec), coder(codec)
    kept = first(one)
    frames = [made.encode(tensors, kept, draw=3) for made in (one, other, one)]
    for made in frames[1:]:
        assert torch.equal(made.frame, frames[0].frame)
        if kept is not None:
            assert made.residual is not None
            assert frames[0].residual is not None
            assert torch.equal(made.residual, frames[0].residual)
    assert kept is None or not kept.any()
    assert all(torch.equal(a, b) for a, b in zip(tensors, before, strict=True))


@pytest.mark.parametrize("codec", FED_BACK, ids=repr)
def test_what_was_decoded_and_the_residual_are_all_that_was_pushed(codec: Codec) -> None:
    """Over 1,000 pushes, some of which lack a gradient."""
    shapes = [(9, 8), (5,), (6, 10)]
    both = coder(codec, shapes)
    residual, into = first(both), torch.zeros(both.kept)
    pushed, decoded = torch.zeros(137, dtype=torch.float64), torch.zeros(137, dtype=torch.float64)
    random = torch.Generator().manual_seed(0)
    for push in range(1000):
        values = torch.randn(137, generator=random)
        tensors = [v.view(shape) for v, shape in zip(torch.split(values, [72, 5, 60]), shapes, strict=True)]
        given: list[Tensor | None] = [None if push % 10 == place else tensor for place, tensor in enumerate(tensors)]
        frame, now = both.encode(given, residual, push, into)
        assert now is not None
        assert residual is not None
        residual, into = now, residual
        found = both.decode(frame)
        for place, part in enumerate(torch.split(pushed, [72, 5, 60])):
            if (tensor := given[place]) is not None:
                part += tensor.flatten()
        for place, part in enumerate(torch.split(decoded, [72, 5, 60])):
            if (tensor := found[place]) is not None:
                part += tensor.flatten()
            else:
                assert given[place] is None
    assert residual is not None
    assert (decoded + residual[:137] - pushed).abs().max() < 2e-4  # of sums of 1,000 in fp32
    assert residual[:137].norm() < 0.5 * pushed.norm()


@pytest.mark.parametrize("codec", [codec for codec in EVERY if not codec.exact], ids=repr)
@pytest.mark.parametrize("strange", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_carried_and_leaves_the_residual(codec: Codec, strange: float) -> None:
    both, tensors = coder(codec), drawn(3)
    kept = first(both)
    if kept is not None:
        _, kept = both.encode(tensors, kept)
    tensors[3][0, 2] = strange
    frame, residual = both.encode(tensors, kept)
    got = flat(both.decode(frame))
    assert torch.equal(got.isfinite(), flat(tensors).isfinite())
    assert not codec.error_feedback or torch.equal(got, flat(tensors)) or math.isnan(strange)
    if kept is not None:
        assert residual is not None
        assert torch.equal(residual, kept)


@pytest.mark.parametrize("codec", EVERY, ids=repr)
def test_other_types_and_memory_orders(codec: Codec) -> None:
    for dtype in (torch.bfloat16, torch.float64):
        both = coder(codec, dtype=dtype)
        tensors = [tensor.to(dtype) for tensor in drawn(4)]
        strided = [tensor.t() if tensor.dim() == 2 else tensor for tensor in tensors]
        strided = [tensor.contiguous().t() if tensor.dim() == 2 else tensor for tensor in strided]
        strided[4] = strided[4].contiguous(memory_format=torch.channels_last)
        assert not strided[5].is_contiguous()
        frame = both.encode(strided, first(both), 5).frame
        decoded = both.decode(frame)
        assert {tensor.dtype for tensor in decoded if tensor is not None} == {dtype}
        assert torch.equal(frame, both.encode(tensors, first(both), 5).frame)
        if codec.exact:
            assert torch.equal(flat(decoded), flat(tensors))
        assert frame.numel() <= both.nbytes()


@pytest.mark.parametrize("codec", EVERY, ids=repr)
def test_zeros_and_tiny_values(codec: Codec) -> None:
    for value in (0.0, 1e-38):
        both = coder(codec)
        tensors = [torch.full(shape, value) for shape in SHAPES]
        decoded = flat(both.decode(both.encode(tensors, first(both)).frame))
        assert decoded.abs().max() <= 1e-35


def test_a_large_tensor() -> None:
    """More values than the sample of top-k has, and than a block."""
    shapes = [(1000, 700)]
    tensors = drawn(5, shapes)
    for codec in (Int8(), Sign(), TopK(), PowerSgd(4)):
        both = coder(codec, shapes)
        frame, residual = both.encode(tensors, first(both))
        assert residual is not None
        assert torch.allclose(flat(both.decode(frame)) + residual[:700_000], flat(tensors), atol=1e-6)
    found = coder(TopK(), shapes).decode(coder(TopK(), shapes).encode(tensors, None).frame)[0]
    assert found is not None
    least = flat(tensors).abs().topk(7000).values.min()
    assert int((found != 0).sum()) == 7000
    assert found[found != 0].abs().min() == least


def test_fp16_carries_values_beyond_its_range_as_they_are() -> None:
    both, tensors = coder(Fp16()), drawn(6)
    tensors[3][0, 0] = 1e6
    frame = both.encode(tensors, None).frame
    assert torch.equal(flat(both.decode(frame)), flat(tensors))
    assert frame.numel() > both.nbytes()


def test_bad_frames_are_refused_before_anything_is_made_room_for() -> None:
    both, tensors = coder(TopK(0.5)), drawn(7)
    frame = both.encode(tensors, first(both)).frame
    bad = {
        "too short": frame[:20],
        "cut off": frame[:-8],
        "longer": torch.cat([frame, frame[:8]]),
        "no magic": torch.cat([frame[:1] + 1, frame[1:]]),
        "another codec's": coder(Sign()).encode(tensors, None).frame,
        "other tensors'": coder(TopK(0.5), [(4,)]).encode([torch.ones(4)], None).frame,
    }
    others = coder(TopK(0.5), [(2,)] * len(SHAPES))
    bad["other shapes'"] = others.encode([torch.ones(2)] * len(SHAPES), None).frame
    places = frame.clone()
    places[HEADER : HEADER + 4] = 255
    bad["a place outside"] = places
    huge = frame.clone()
    huge[16:32] = torch.tensor([0, 0, 0, 0, 0, 0, 0, 64] * 2, dtype=torch.uint8)  # it says 2**62 bytes
    bad["huge"] = huge
    for what, one in bad.items():
        with pytest.raises(FrameError, match=r"^frame: "):
            print(what, both.decode(one))


def test_bad_compressed_frames_are_refused() -> None:
    both = coder(Fp32(zstd=3), [(1000,)])
    frame = both.encode([torch.zeros(1000)], None).frame
    assert frame.numel() < 100
    larger = coder(Fp32(zstd=3), [(100_000,)]).encode([torch.zeros(100_000)], None).frame
    for bad in (larger, torch.cat([frame[:HEADER], torch.zeros(frame.numel() - HEADER, dtype=torch.uint8)])):
        with pytest.raises(FrameError, match=r"^frame: "):
            both.decode(bad)
    with pytest.raises(FrameError, match="zstd"):
        coder(Fp32(), [(1000,)]).decode(frame)


def test_whole_numbers_and_ranks_without_use_are_refused_by_key() -> None:
    with pytest.raises(ValueError, match=r"^pull_codec: parameter 0 has dtype int64, which no codec supports"):
        Coder(Int8(), [Spec((3,), torch.int64)], "pull_codec")
    with pytest.raises(ValueError, match=r"push_codec\.rank: 16 does not make any matrix .* Use at most 15"):
        PowerSgd(16).check([(32, 32), (32,)], PowerSgd.ARGUMENT)
    with pytest.raises(ValueError, match="Use bf16"):
        PowerSgd(1).check([(32,)], PowerSgd.ARGUMENT)


@pytest.mark.parametrize("codec", [RandomK(0.1), Qsgd(levels=1), PowerSgd(rank=1, error_feedback=False)], ids=str)
def test_each_push_of_a_worker_draws_anew(codec: Codec) -> None:
    """A push's number is in the upper half of what a frame is drawn from, which torch's generator by itself ignores."""
    coder, tensors = Coder(codec, [Spec((20, 10), torch.float32)]), [torch.randn(20, 10)]
    frames = {bytes(coder.encode(tensors, None, seq << 32 | 1 << 16).frame[HEADER:].numpy()) for seq in range(20)}
    assert len(frames) == 20
    assert len({int(generator(seq << 32).initial_seed()) for seq in range(1000)}) == 1000


@pytest.mark.parametrize("odd", [math.nan, -math.nan, math.inf, -math.inf])
def test_one_value_that_is_not_finite_among_many_is_carried(odd: float) -> None:
    """Where the threshold is guessed from a sample, in which it is not."""
    values = torch.randn(40_000, generator=torch.Generator().manual_seed(5))
    values[1] = odd
    coder = Coder(TopK(0.01), [Spec((40_000,), torch.float32)])
    frame, residual = coder.encode([values], torch.zeros(coder.kept))
    (decoded,) = coder.decode(frame)
    assert decoded is not None
    assert torch.equal(decoded.nan_to_num(7, 8, 9), values.nan_to_num(7, 8, 9))
    assert residual is not None
    assert not residual.any()


class Tenths(Codec):
    """A codec of a person's own: rounds to tenths, in 16 bits."""

    name = "tenths"
    zstd = 0

    @override
    def parts(self, shapes: Sequence[Shape]) -> tuple[Part, ...]:
        return (Part("int16", numel(shapes)),)


class Kernelless(Tenths):
    name = "kernelless"


class TenthsKernel(Kernel[Tenths]):
    @override
    def write(self, values: Tensor, parts: list[Tensor], draw: int, state: Tensor | None, scratch: Tensor) -> bool:
        parts[0].copy_(torch.mul(values, 10, out=scratch).round_())
        return finite(values)

    @override
    def read(self, parts: list[Tensor], values: Tensor, draw: int, feedback: bool) -> None:
        values.copy_(parts[0]).div_(10)


def test_a_codec_of_one_s_own_travels_in_frames() -> None:
    tensors = drawn(7)
    frame = coder(Tenths()).encode(tensors, None).frame
    back = coder(Tenths()).decode(frame)
    assert torch.allclose(flat(back), (flat(tensors) * 10).round() / 10)
    with pytest.raises(FrameError, match="codec"):
        coder(Int8()).decode(frame)


def test_a_codec_without_a_kernel_is_refused_with_what_to_write() -> None:
    with pytest.raises(ValueError, match=r"pull_codec: kernelless has no kernel\. Define .* Kernel\[Kernelless\]"):
        Coder(Kernelless(), [Spec((2,), torch.float32)], "pull_codec")


def test_a_codec_of_one_s_own_replaces_none_that_ships() -> None:
    class Mine(Int8):
        """Its name is that of `Int8`."""

    before = KERNELS["int8"]
    with pytest.raises(TypeError, match="Mine: int8 is the name of a built-in codec"):

        class MineKernel(Kernel[Mine]):
            """Never made."""

    assert KERNELS["int8"] is before


def test_a_part_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="Part: a frame cannot contain int4"):
        assert Part("int4", 3).nbytes
