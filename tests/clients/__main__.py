"""Runs programs of people's libraries with our strategies: python -m tests.clients [--only NAME] [--ways WAY,...]."""

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.clients.case import WAYS, Case, Way
from tests.clients.environment import Environment
from tests.clients.run import Runs
from tests.clients.table import CASES, by_name
from tests.clients.verdicts import Result, read, report


def _ways(text: str) -> tuple[Way, ...]:
    asked = [way.strip() for way in text.split(",")]
    if unknown := set(asked) - set(WAYS):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: is none of {', '.join(WAYS)}")
    return tuple(way for way in WAYS if way in asked)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="cases whose name contains this; repeatable")
    parser.add_argument("--ways", type=_ways, default=WAYS, help=f"of {','.join(WAYS)}; default: all")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="results; what it has is kept, unless run again")
    parser.add_argument("--deadline", type=float, default=150.0, metavar="S", help="seconds for one run")
    parser.add_argument(
        "--environment", type=Path, default=Path.home() / ".cache" / "scalebook" / "clients",
        help="folder of the environment with the libraries, on top of the present one; made when missing",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    cases: list[Case] = (
        list(CASES)
        if given.only is None
        else list({one.name: one for part in given.only for one in by_name(part)}.values())
    )
    if not cases:
        parser.error(f"--only: no case is called so. There are {', '.join(case.name for case in CASES)}.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends with it
    environment = Environment(given.environment)
    absent = environment.prepare(sorted({package for case in cases for package in case.packages}))
    for package, reason in absent.items():
        print(f"{package} cannot be installed: {reason}", flush=True)
    results = read(given.out) if given.out else {}
    with tempfile.TemporaryDirectory(prefix="clients-") as folder:
        for number, case in enumerate(cases):
            for result in _all(case, given, environment, absent, Path(folder) / str(number)):
                results[case.name, result.way] = result
                print(f"{case.name} | {result.way} | {result.brief()}", flush=True)
                if given.out:
                    _write(given.out, list(results.values()))
    print(f"\n{report(results)}")
    return 0


def _all(
    case: Case, given: argparse.Namespace, environment: Environment, absent: dict[str, str], folder: Path
) -> Iterator[Result]:
    """The case in each way that was asked for."""
    if missing := [reason for package, reason in absent.items() if package in case.packages]:
        yield from (Result(case.name, way, "not here", error=missing[0]) for way in given.ways if way in case.ways)
        return
    with Runs(case, environment) as runs:
        for way in (way for way in given.ways if way in case.ways):
            yield runs.run(way, folder / way, given.deadline)


def _write(path: Path, results: list[Result]) -> None:
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps([vars(one) for one in results], indent=1), encoding="utf-8")
    beside.replace(path)


if __name__ == "__main__":
    sys.exit(main())
