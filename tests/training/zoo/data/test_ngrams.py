import numpy as np
import torch

from scalebook.training.zoo.data.ngrams import HASHES, PADDING, Bags, bags, ngrams, words


def test_names_are_words() -> None:
    assert words("HTTPServer.getValue_2 reads") == ["http", "server", "get", "value", "2", "reads"]


def test_ngrams_are_words_pairs_and_letters_each_once() -> None:
    assert len(ngrams("ab ab")) == 4  # ab, "ab ab", #ab and ab#
    assert len(ngrams("read lines")) == 2 + 1 + 4 + 5
    assert ngrams("read lines")[:2] == [ngrams("read")[0], ngrams("lines")[0]]
    assert set(ngrams("read")) & set(ngrams("reader")) != set()


def test_hashes_are_the_same_everywhere() -> None:
    assert ngrams("a") == [1 + 0xE8B7BE43 % (HASHES - 1), 1 + 0x4E2EDB9E % (HASHES - 1)]


def test_a_text_without_words_is_not_empty() -> None:
    assert ngrams("+ - *") == [1]
    assert all(PADDING < number < HASHES for number in ngrams("The quick brown fox"))


def test_rows_are_filled_up_to_the_longest_of_them() -> None:
    found = Bags(np.array([5, 6, 7, 8, 9, 4], np.int32), np.array([1, 4, 6]))
    assert torch.equal(found.rows([2, 0]), torch.tensor([[9, 4], [5, 0]]))
    assert torch.equal(found.rows([1]), torch.tensor([[6, 7, 8]]))
    assert found.rows([1]).dtype == torch.int64


def test_a_part_keeps_the_first_of_each() -> None:
    part = bags(["one two three", "four"]).part([1, 0], most=2)
    assert part.ends.tolist() == [2, 4]
    assert part.text(1).tolist() == ngrams("one two three")[:2]
