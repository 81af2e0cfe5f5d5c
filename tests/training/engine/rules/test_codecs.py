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
    ("make", "message"),
    [
        (lambda: TopK(0.0), r"push_codec\.init_args\.share: 0\.0 is not above 0\. Use 0\.01\."),
        (lambda: RandomK(1.5), r"push_codec\.init_args\.share: 1\.5 is more than 1\. Use 0\.01\."),
        (lambda: Qsgd(0), r"push_codec\.init_args\.levels: 0 is less than 1\. Use 1 to 127\."),
        (lambda: Qsgd(200), r"push_codec\.init_args\.levels: 200 is more than 127\. Use 127 or less\."),
        (lambda: Int8(block=4), r"push_codec\.init_args\.block: 4 is less than 8\. Use 1024\."),
        (lambda: PowerSgd(0), r"push_codec\.init_args\.rank: 0 is less than 1\. Use 1 or more\."),
        (lambda: Bf16(zstd=30), r"push_codec\.init_args\.zstd: 30 is more than 22\. Use 22 or less\."),
        (lambda: make_codec("gzip"), r"push_codec: 'gzip' is unknown\. Use one of fp32, bf16, "),  # type: ignore[arg-type]
    ],
)
def test_what_is_out_of_bounds_is_refused_by_key(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()


def test_names_and_facts() -> None:
    assert tuple(CODECS) == get_args(CodecName)
    assert {name: make_codec(name).name for name in CODECS} == {name: name for name in CODECS}  # type: ignore[arg-type]
    assert [name for name, codec in CODECS.items() if codec.facts().exact] == ["fp32"]
    assert [name for name, codec in CODECS.items() if codec.facts().whole] == ["fp32", "bf16", "fp16"]
    assert not make_codec("fp32").codes
    assert Fp32(zstd=1).codes
