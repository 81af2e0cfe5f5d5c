"""The log of updates: which gradients made which version of which shard. With the batches it replays a run.

A folder: `trace.json` (workers, sections, shards, the versions at start and end), `section-i-shard-j.bin` (fixed
records), and `section-i-worker-w.jsonl` (hyper-parameters, a line where they change). A record is written before its
version is published, at a place that follows from the version: what a killed process has begun, its successor
overwrites.
"""

import json
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from training.ps.hyper import Groups, decode, encode

if TYPE_CHECKING:
    from training.ps.shard import Origin

RECORD: Final = struct.Struct("<qqqqqd")
"""version that it made, worker, push, version it was computed from, gradients averaged in that update, rate."""


class Record(NamedTuple):
    """One gradient in one version of one shard. `of` gradients make the version; `rate` scales the learning rate."""

    version: int
    worker: int
    seq: int
    base_version: int
    of: int
    rate: float


class ShardTrace:
    """Writes one shard's records. Opened in each process that applies; called under the shard's lock."""

    def __init__(self, folder: Path, section: int, shard: int, most: int) -> None:
        """`most` gradients are averaged in one update; that many records are kept free for each."""
        self._most = most
        self._file = os.open(_records(folder, section, shard), os.O_WRONLY | os.O_CREAT, 0o644)

    def record(self, version: int, origins: "Sequence[Origin]", rate: float) -> None:
        """One update of the shard; `version` is the one it makes."""
        of = len(origins)
        packed = b"".join(RECORD.pack(version, o.worker, o.seq, o.base_version, of, rate) for o in origins)
        os.pwrite(self._file, packed, (version - 1) * self._most * RECORD.size)

    def __del__(self) -> None:
        os.close(self._file)


class HyperTrace:
    """Writes one worker's hyper-parameters, before the first push that uses them."""

    def __init__(self, folder: Path, section: int, worker: int) -> None:
        self._path = _hyper(folder, section, worker)
        self._last = b""

    def note(self, seq: int, groups: Groups) -> None:
        """The groups that push `seq` travels with."""
        text = encode(groups)
        if text != self._last:
            with self._path.open("ab") as file:
                file.write(json.dumps(seq).encode() + b" " + text + b"\n")
            self._last = text


def write_head(folder: Path, content: dict[str, Any]) -> None:
    """`trace.json`; the first time when training begins, again with the last versions when the run has ended."""
    part = folder / "trace.json.part"
    part.write_text(json.dumps(content, indent=1), encoding="utf-8")
    part.replace(folder / "trace.json")


def read_head(folder: Path) -> dict[str, Any]:
    """What `write_head` wrote."""
    content: dict[str, Any] = json.loads((folder / "trace.json").read_text(encoding="utf-8"))
    return content


def read_updates(folder: Path, section: int, shard: int, most: int, first: int, last: int) -> Iterator[list[Record]]:
    """The updates that made versions `first`..`last` of a shard, in order: each the records of its gradients."""
    content = _records(folder, section, shard).read_bytes()
    for version in range(first, last + 1):
        at = (version - 1) * most * RECORD.size
        lead = Record(*RECORD.unpack_from(content, at))
        assert lead.version == version, f"the trace of version {version} holds {lead.version}"
        yield [Record(*RECORD.unpack_from(content, at + i * RECORD.size)) for i in range(lead.of)]


def read_hyper(folder: Path, section: int, worker: int) -> list[tuple[int, list[dict[str, Any]]]]:
    """(push, groups) where they changed, in order of pushes."""
    path = _hyper(folder, section, worker)
    lines = path.read_bytes().splitlines() if path.exists() else []
    parts = [line.split(b" ", 1) for line in lines]
    return [(int(seq), decode(text)) for seq, text in parts]


def _records(folder: Path, section: int, shard: int) -> Path:
    return folder / f"section-{section}-shard-{shard}.bin"


def _hyper(folder: Path, section: int, worker: int) -> Path:
    return folder / f"section-{section}-worker-{worker}.jsonl"
