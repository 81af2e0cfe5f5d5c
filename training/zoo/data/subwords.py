"""Subwords of a text, learned from it: byte-pair encoding, kept in the user's cache."""

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from torch import Tensor

from scalebook.training.base import ConfigError
from scalebook.training.zoo.data.cache import load_arrays, store_arrays

PADDING: Final = 0
"""Pads the rows of a batch to the longest."""
START: Final = 1
END: Final = 2
UNKNOWN: Final = 3
"""A letter that the training text does not have."""
FORMAT: Final = 1
"""Version of the cache file. Raise it when other subwords are learned."""
LONGEST_BYTES: Final = 1 << 16
"""Longest text to learn from."""


class Subwords:
    """Texts to numbers and back, by subwords (Sennrich, Haddow, Birch 2016) as SentencePiece has them.

    `model` is SentencePiece's own serialization, a protocol buffer; copies of an object share nothing but it.
    """

    def __init__(self, model: bytes) -> None:
        from sentencepiece import SentencePieceProcessor  # of the extra `examples`

        self.model = model
        self._processor = SentencePieceProcessor(model_proto=model)

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    def __reduce__(self) -> tuple[type["Subwords"], tuple[bytes]]:
        return type(self), (self.model,)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The subwords of each text, without START and END."""
        rows: list[list[int]] = self._processor.encode(list(texts), return_type=int)
        return rows

    def decode(self, rows: Tensor) -> list[str]:
        """The text of each row of int64 [texts, subwords], up to its first END."""
        texts: list[str] = self._processor.decode([_up_to_end(row) for row in rows.tolist()], return_type=str)
        return texts


def subwords(texts: Sequence[str], size: int, folder: Path) -> Subwords:
    """At most `size` subwords learned from the texts, the same each time; cached in the folder by texts and size."""
    key = hashlib.sha256(repr((FORMAT, size, list(texts))).encode()).hexdigest()[:16]
    path = folder / f"subwords-{key}.npz"
    arrays = load_arrays(path, ["model"])
    if arrays is not None:
        return Subwords(arrays["model"].tobytes())
    made = learned(texts, size)
    store_arrays(path, {"model": np.frombuffer(made.model, np.uint8)}, "each worker learns the subwords")
    return made


def learned(texts: Sequence[str], size: int) -> Subwords:
    """At most `size` subwords: the letters of the texts, then the most frequent ones.

    ConfigError if there are more letters than that.
    """
    from sentencepiece import SentencePieceTrainer

    out = io.BytesIO()
    options: dict[str, Any] = {
        "model_type": "bpe",
        "vocab_size": size,
        "hard_vocab_limit": False,
        "character_coverage": 1.0,
        "normalization_rule_name": "identity",
        "max_sentence_length": LONGEST_BYTES,
        "num_threads": 1,
        "minloglevel": 2,
        "pad_id": PADDING,
        "bos_id": START,
        "eos_id": END,
        "unk_id": UNKNOWN,
    }
    try:
        SentencePieceTrainer.train(sentence_iterator=iter(texts), model_writer=out, **options)
    except RuntimeError as error:
        letters = len(set("".join(texts)))
        raise ConfigError(
            "data.init_args.vocabulary",
            f"{size} subwords cannot be learned from {len(texts)} texts with {letters} letters ({error})",
            "Set the number of subwords to several times the number of letters.",
        ) from error
    return Subwords(out.getvalue())


def _up_to_end(row: list[int]) -> list[int]:
    return row[: row.index(END)] if END in row else row
