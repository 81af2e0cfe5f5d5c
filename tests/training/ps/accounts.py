"""What a run must have come to, from its trace alone: every push accounted for, the weights made once more."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from scalebook.training.ps.codecs.coder import Coder, Spec
from scalebook.training.ps.policy.codecs import Fp32
from scalebook.training.ps.policy.frames import Codec
from scalebook.training.ps.trace import Record, read_head, read_updates
from tests.training.ps.killing import Stepwise

NONE = Fp32()
SHAPES = ((2,), (3, 5), (7,))
"""Of the parameters, for each worker; in one of three shards each when there are three."""


class Final(NamedTuple):
    """What a worker has at the end: version of each shard and its parameters' places; parameters; their momenta."""

    versions: list[int]
    places: list[tuple[int, ...]]
    parameters: list[Tensor]
    momenta: list[Tensor | None]


class Account(NamedTuple):
    """Pushes that were let in and are in no version; pushes that are in a shard twice, or were never let in; shards
    whose parameters and momenta are not those that the trace makes."""

    lost: int
    duplicated: int
    torn: int


def make_parameters(workers: int) -> list[Parameter]:
    """float64 zeros; the first dimension is the worker, so that the parameters say whose updates they have."""
    return [Parameter(torch.zeros(workers, *shape, dtype=torch.float64)) for shape in SHAPES]


def gradients(worker: int, workers: int) -> list[Tensor]:
    """Ones in the worker's own part, zeros elsewhere."""
    made = [torch.zeros(workers, *shape, dtype=torch.float64) for shape in SHAPES]
    for gradient in made:
        gradient[worker] = 1.0
    return made


def settle(
    folder: Path, finals: Sequence[Final], admitted: Sequence[int], deaths: Sequence[int], codec: Codec = NONE
) -> Account:
    """Hold what the survivors have against the trace, and what it makes of their gradients by this push codec.

    `admitted[w]`: pushes of worker w that returned as let in; `deaths[w]`: how often it died, and so how many pushes
    more may be in the shards: it may have been killed between the update and the return.
    """
    head = read_head(folder)
    lost = duplicated = torn = 0
    for shard, last in enumerate(head.last[0]):
        updates = list(read_updates(folder, 0, shard, head.most, 1, last))
        pushes = Counter((record.worker, record.seq) for update in updates for record in update)
        duplicated += sum(count - 1 for count in pushes.values())
        for worker, wanted in enumerate(admitted):
            found = sum(1 for whose, _ in pushes if whose == worker)
            lost += max(0, wanted - found)
            duplicated += max(0, found - wanted - deaths[worker])
        places = finals[0].places[shard]
        coded = Coded(codec, shard, [tuple(make_parameters(len(admitted))[place].shape) for place in places])
        parameters, momenta = _again(updates, places, len(admitted), coded)
        torn += sum(not _same(final, shard, last, parameters, momenta) for final in finals)
    return Account(lost, duplicated, torn)


class Coded:
    """What one shard gets of the gradients of each worker, which keeps what their frames leave out."""

    def __init__(self, codec: Codec, shard: int, shapes: Sequence[tuple[int, ...]]) -> None:
        self._codes, self._shard = codec.codes, shard
        self._coder = Coder(codec, [Spec(shape, torch.float64) for shape in shapes])
        self._kept: dict[int, Tensor] = {}

    def travelled(self, record: Record, mine: Sequence[Tensor]) -> Sequence[Tensor]:
        """As decoded; each admitted push once, in the order in which its worker made them."""
        if not self._codes:
            return mine
        before = self._kept.setdefault(record.worker, torch.zeros(self._coder.kept)) if self._coder.kept else None
        draw = record.seq << 32 | record.worker << 16 | self._shard
        frame, after = self._coder.encode(mine, before, draw)
        if after is not None:
            self._kept[record.worker] = after
        return [one.clone() for one in self._coder.decode(frame) if one is not None]


def _again(
    updates: Sequence[Sequence[Record]], places: Sequence[int], workers: int, coded: "Coded"
) -> tuple[list[Parameter], list[Tensor | None]]:
    """One shard's parameters and momenta, made in this process by the same updates in the same order."""
    parameters = [make_parameters(workers)[place] for place in places]
    optimizer = Stepwise(parameters)
    for update in updates:
        pushed = []
        for record in update:
            own = gradients(record.worker, workers)
            pushed.append(coded.travelled(record, [own[place] for place in places]))
        for parameter, parts in zip(parameters, zip(*pushed, strict=True), strict=True):
            parameter.grad = torch.stack(parts).sum(0).div_(len(parts))
        optimizer.step()
    return parameters, [optimizer.state[parameter].get("momentum") for parameter in parameters]


def _same(final: Final, shard: int, last: int, parameters: Sequence[Tensor], momenta: Sequence[Tensor | None]) -> bool:
    if final.versions[shard] != last:
        return False
    for i, place in enumerate(final.places[shard]):
        momentum, wanted = final.momenta[place], momenta[i]
        if not torch.equal(final.parameters[place], parameters[i]):
            return False
        if momentum is None or wanted is None:
            if momentum is not wanted:
                return False
        elif not torch.equal(momentum, wanted):
            return False
    return True
