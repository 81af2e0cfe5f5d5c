"""The log of updates: which gradients made which version of which shard.

A folder with `trace.json`: the run's settings, and the versions at start and end. Each shard has
`optimizer-i-shard-j.bin`: which gradients made its versions. Each worker has `optimizer-i-worker-w.bin`: the versions
that its gradients were computed from; and `optimizer-i-worker-w.jsonl`: the hyper-parameters when they changed. A
shard's record is written before its version is published, at an offset that follows from the version, so the successor
of a killed process overwrites what that one had begun.
"""

import json
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from scalebook.training.engine.hyper import Encoder, Groups, decode
from scalebook.training.engine.rules.settings import Settings

RECORD: Final = struct.Struct("<qqqqqd")
"""The version it made, worker, push, the version it was computed from, gradients averaged in that update, rate."""


class Origin(NamedTuple):
    """Where a gradient comes from: worker and push, the version and buffer it was computed from, and when that was
    pulled (s)."""

    worker: int
    seq: int
    base_version: int
    base_buffer: int
    pulled: float


class Record(NamedTuple):
    """One gradient in one version of one shard. The version averages `gradients`; `rate` scales the learning rate."""

    version: int
    worker: int
    seq: int
    base_version: int
    gradients: int
    rate: float


class Head(NamedTuple):
    """The run that a trace is of. `most`: gradients in an update at most. `first` by optimizer, `last` by optimizer and
    shard: the versions before the first and after the last update."""

    workers: int
    shards: int
    most: int
    rule: str
    damping: str
    first: list[int]
    last: list[list[int]]
    push_codec: str = ""
    """"" in a trace of before codecs were recorded."""

    @classmethod
    def of(cls, settings: Settings, workers: int, first: list[int], last: list[list[int]]) -> "Head":
        """The head of a run of so many workers."""
        return cls(
            workers=workers,
            shards=settings.shards,
            most=settings.most(workers),
            rule=repr(settings.rule),
            damping=repr(settings.damping),
            first=first,
            last=last,
            push_codec=repr(settings.push_codec),
        )


class ShardTrace:
    """Writes one shard's records. Opened in each process that applies, and called under `Shard.applying`."""

    def __init__(self, folder: Path, optimizer: int, shard: int, most: int) -> None:
        """`most`: gradients in one update at most; each update has room for that many records."""
        self._most = most
        self._file = os.open(_records(folder, optimizer, shard), os.O_WRONLY | os.O_CREAT, 0o644)

    def record(self, version: int, origins: Sequence[Origin], rate: float) -> None:
        """Write one update of the shard; `version` is the one it makes."""
        of = len(origins)
        packed = b"".join(RECORD.pack(version, o.worker, o.seq, o.base_version, of, rate) for o in origins)
        os.pwrite(self._file, packed, (version - 1) * self._most * RECORD.size)

    def __del__(self) -> None:
        os.close(self._file)


class WorkerTrace:
    """Writes one worker's pushes, each before it is made."""

    def __init__(self, folder: Path, optimizer: int, worker: int, shards: int) -> None:
        self._settings = _hyper(folder, optimizer, worker)
        self._encode, self._last = Encoder(), b""
        self._record = _pushed(shards)
        self._file = os.open(_pushes(folder, optimizer, worker), os.O_WRONLY | os.O_CREAT, 0o644)

    def record_push(self, seq: int, bases: Sequence[int], valid: bool, groups: Groups) -> None:
        """Write push `seq`: the version of each shard it was computed from, whether it counts, and its
        hyper-parameters."""
        os.pwrite(self._file, self._record.pack(seq, valid, *bases), (seq - 1) * self._record.size)
        text = self._encode(groups)
        if text != self._last:
            with self._settings.open("ab") as file:
                file.write(json.dumps(seq).encode() + b" " + text + b"\n")
            self._last = text

    def __del__(self) -> None:
        os.close(self._file)


def write_head(folder: Path, head: Head) -> None:
    """Write `trace.json`: when training begins, and again with the last versions when the run has ended."""
    part = folder / "trace.json.part"
    part.write_text(json.dumps(head._asdict(), indent=1), encoding="utf-8")
    part.replace(folder / "trace.json")


def read_head(folder: Path) -> Head:
    """What `write_head` wrote."""
    return Head(**json.loads((folder / "trace.json").read_text(encoding="utf-8")))


def read_updates(folder: Path, optimizer: int, shard: int, most: int, first: int, last: int) -> Iterator[list[Record]]:
    """The updates that made versions `first`..`last` of a shard, in order: the records of each one's gradients."""
    content = _records(folder, optimizer, shard).read_bytes()
    for version in range(first, last + 1):
        offset = (version - 1) * most * RECORD.size
        lead = Record(*RECORD.unpack_from(content, offset))
        assert lead.version == version, f"the trace of version {version} holds {lead.version}"
        yield [Record(*RECORD.unpack_from(content, offset + i * RECORD.size)) for i in range(lead.gradients)]


def read_hyper(folder: Path, optimizer: int, worker: int) -> list[tuple[int, list[dict[str, Any]]]]:
    """(push, groups) at each change, in order of pushes."""
    path = _hyper(folder, optimizer, worker)
    lines = path.read_bytes().splitlines() if path.exists() else []
    parts = [line.split(b" ", 1) for line in lines]
    return [(int(seq), decode(text)) for seq, text in parts]


def read_pushes(folder: Path, optimizer: int, worker: int, shards: int) -> dict[int, tuple[bool, tuple[int, ...]]]:
    """By push: whether it counts, and the version of each shard that it was computed from."""
    path, record = _pushes(folder, optimizer, worker), _pushed(shards)
    content = path.read_bytes() if path.exists() else b""
    rows = (record.unpack_from(content, offset) for offset in range(0, len(content), record.size))
    return {seq: (bool(valid), tuple(bases)) for seq, valid, *bases in rows if seq}


def _pushed(shards: int) -> struct.Struct:
    return struct.Struct(f"<qq{shards}q")


def _pushes(folder: Path, optimizer: int, worker: int) -> Path:
    return folder / f"optimizer-{optimizer}-worker-{worker}.bin"


def _records(folder: Path, optimizer: int, shard: int) -> Path:
    return folder / f"optimizer-{optimizer}-shard-{shard}.bin"


def _hyper(folder: Path, optimizer: int, worker: int) -> Path:
    return folder / f"optimizer-{optimizer}-worker-{worker}.jsonl"
