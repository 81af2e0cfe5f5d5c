"""What became of each test: a file of JSON lines, of which a test's last one counts."""

import json
from pathlib import Path
from typing import Final, NamedTuple

RESULTS: Final = Path("/tmp/scalebook-lightning")
MORE: Final = 3  # exit status: the time is up and tests are left


class Result(NamedTuple):
    """`outcome`: passed, failed, refused, names, counts, skipped, timed out, died. `used`: Trainers with ours."""

    test: str
    outcome: str
    why: str
    used: int
    seconds: float


def read(path: Path) -> dict[str, Result]:
    """By test, in the order in which they were run; nothing when there is no such file."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    results = [Result(**json.loads(line)) for line in lines if line.endswith("}")]
    return {one.test: one for one in results}


def path_of(way: str, folder: Path = RESULTS) -> Path:
    """Where the results of one way of running lie."""
    return folder / f"{way}.jsonl"
