"""What a run must have come to, from its trace alone: every push accounted for, the weights made once more."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from scalebook.training.engine.codecs.coder import Coder, Spec
from scalebook.training.engine.rules.codecs import Codec, Fp32
from scalebook.training.engine.trace import Record, read_head, read_updates
from tests.training.engine.trained import Trained

NONE = Fp32()


class Final(NamedTuple):
    """What a worker has at the end: version of each shard and its parameters' places; parameters; of each what the
    optimizer keeps, a momentum for instance; None where that is not known of any."""

    versions: list[int]
    places: list[tuple[int, ...]]
    parameters: list[Tensor]
    momenta: list[Tensor | None] | None


class Account(NamedTuple):
    """Pushes that were let in and are in no version; pushes that are in a shard twice, or were never let in; shards
    whose parameters and momenta are not those that the trace makes."""

    lost: int
    duplicated: int
    torn: int


def settle(
    folder: Path,
    finals: Sequence[Final],
    admitted: Sequence[int],
    more: Sequence[int],
    trained: Trained,
    codec: Codec = NONE,
) -> Account:
    """Hold what the survivors have against the trace, and what it makes of their gradients by this push codec.

    `admitted[w]`: pushes of worker w that returned as let in; `more[w]`: how many pushes more of it may be in the
    shards: one for each death, which may lie between the update and the return, and one where it ended with steps left.
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
            duplicated += max(0, found - wanted - more[worker])
        places = finals[0].places[shard]
        if trained.is_known:
            shapes = [tuple(trained.parameters()[place].shape) for place in places]
            parameters, kept = _again(updates, places, trained, Coded(codec, shard, shapes))
        else:
            parameters = [Parameter(finals[0].parameters[place]) for place in places]
            assert finals[0].momenta is not None
            kept = [finals[0].momenta[place] for place in places]
        torn += sum(not _same(final, shard, last, parameters, kept, trained.tolerance) for final in finals)
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
    updates: Sequence[Sequence[Record]], places: Sequence[int], trained: Trained, coded: "Coded"
) -> tuple[list[Parameter], list[Tensor | None]]:
    """One shard's parameters and what its optimizer keeps, made in this process by the same updates in the same
    order."""
    first = trained.parameters()
    parameters = [Parameter(first[place].detach()) for place in places]
    optimizer = trained.again(parameters)
    for update in updates:
        pushed = []
        for record in update:
            own = trained.pushed(record.worker, record.seq)
            pushed.append(coded.travelled(record, [own[place] for place in places]))
        for parameter, parts in zip(parameters, zip(*pushed, strict=True), strict=True):
            parameter.grad = torch.stack(parts).sum(0).div_(len(parts))
        optimizer.step()
    return parameters, [optimizer.state[parameter].get(trained.state) for parameter in parameters]


def _same(
    final: Final,
    shard: int,
    last: int,
    parameters: Sequence[Tensor],
    kept: Sequence[Tensor | None],
    tolerance: float,
) -> bool:
    if final.versions[shard] != last:
        return False
    for i, place in enumerate(final.places[shard]):
        if not _alike(final.parameters[place], parameters[i].detach(), tolerance):
            return False
        if final.momenta is None:
            continue
        mine, wanted = final.momenta[place], kept[i]
        if mine is None or wanted is None:
            if mine is not wanted:
                return False
        elif not _alike(mine, wanted, tolerance):
            return False
    return True


def _alike(mine: Tensor, wanted: Tensor, tolerance: float) -> bool:
    """To the bit where there is no tolerance: sums of thirds are made in other orders."""
    if not (mine.shape == wanted.shape and bool(mine.isfinite().all())):
        return False
    return torch.equal(mine, wanted) if not tolerance else torch.allclose(mine, wanted, rtol=tolerance, atol=tolerance)
