"""What codecs declare: names, bounds, and bytes known before anything runs."""

from typing import get_args

import pytest

from scalebook.training.engine.rules.codecs import (
    CODECS,
    HEADER,
    Bf16,
    CodecName,
    Fp32,
    Int8,
    PowerSgd,
    Qsgd,
    RandomK,
    Sign,
    TopK,
    make_codec,
)
from tests.training.engine.refusing import refused


def test_bytes_follow_from_the_shapes() -> None:
    shapes = [(512, 784), (512,), (10, 512), (10,)]
    numbers = 401_408 + 512 + 5120 + 10
    assert Fp32().nbytes(shapes) == 4 * numbers
    assert Fp32().nbytes(shapes, width=8) == 8 * numbers
    assert Fp32(zstd=3).nbytes(shapes) == HEADER + 4 * numbers
    assert Bf16().nbytes(shapes) == HEADER + 2 * numbers + 4  # parts begin at multiples of 8
    assert Int8(1024).nbytes(shapes) == HEADER + numbers + 6 + 4 * 398
    assert Sign(1024).nbytes(shapes) == HEADER + numbers // 8 + 7 + 4 * 398
    assert Qsgd(1, 512).nbytes(shapes) == HEADER + numbers // 4 + 6 + 4 * 795 + 4
    assert TopK(0.01).nbytes(shapes) == HEADER + 2 * (4 * 4070)
    assert RandomK(0.01).nbytes(shapes) == HEADER + 4 * 4070
    assert PowerSgd(2).nbytes(shapes) == HEADER + 2 * 4 * (512 + 10) + 2 * 4 * (784 + 512) + 4 * 522


@pytest.mark.parametrize(
    ("make", "mistake"),
    [
        (lambda: TopK(0.0), "out-of-bounds push_codec.share"),
        (lambda: RandomK(1.5), "out-of-bounds push_codec.share"),
        (lambda: Qsgd(0), "out-of-bounds push_codec.levels"),
        (lambda: Qsgd(200), "out-of-bounds push_codec.levels"),
        (lambda: Int8(block=4), "out-of-bounds push_codec.block"),
        (lambda: PowerSgd(0), "out-of-bounds push_codec.rank"),
        (lambda: Bf16(zstd=30), "out-of-bounds push_codec.zstd"),
        (lambda: make_codec("gzip"), "unknown-value push_codec"),  # type: ignore[arg-type]
    ],
)
def test_what_is_out_of_bounds_is_refused_by_key(make: object, mistake: str) -> None:
    assert callable(make)
    with refused(mistake):
        make()


def test_names_and_facts() -> None:
    assert tuple(CODECS) == get_args(CodecName)
    assert {name: make_codec(name).name for name in CODECS} == {name: name for name in CODECS}  # type: ignore[arg-type]
    assert [name for name, codec in CODECS.items() if codec.facts().exact] == ["fp32"]
    assert [name for name, codec in CODECS.items() if codec.facts().whole] == ["fp32", "bf16", "fp16"]
    assert not make_codec("fp32").codes
    assert Fp32(zstd=1).codes
