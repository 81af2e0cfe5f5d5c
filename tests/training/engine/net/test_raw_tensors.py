import gc
import weakref

import torch

from scalebook.training.engine.net.raw_tensors import bytes_of


def test_any_part_of_the_bytes_keeps_the_tensor_and_the_last_one_lets_it_go() -> None:
    tensor = torch.arange(4, dtype=torch.int32)
    there = weakref.ref(tensor)
    last = bytes_of(tensor)[12:]
    del tensor
    gc.collect()
    assert bytes(last) == (3).to_bytes(4, "little")
    assert there() is not None
    del last
    gc.collect()
    assert there() is None


def test_bytes_of_nothing_are_none_and_those_of_a_matrix_are_its_memory() -> None:
    assert bytes_of(torch.empty(0)).nbytes == 0
    matrix = torch.zeros(2, 3)
    bytes_of(matrix)[:4] = torch.ones(1).numpy().tobytes()
    assert matrix.tolist() == [[1, 0, 0], [0, 0, 0]]
