"""The table of a run of Lightning's tests: python -m tests.lightning.table."""

import argparse
from collections import Counter
from pathlib import Path

from tests.lightning.results import RESULTS, Result, path_of, read
from tests.lightning.substitute import BASELINES, Way


def table(folder: Path = RESULTS) -> str:
    """Both ways, by folder of the tests, then every test that does not pass, with the reason."""
    return "\n\n".join(_way(way, folder) for way in BASELINES if path_of(way, folder).exists())


def counted(way: Way, folder: Path = RESULTS) -> dict[str, Result]:
    """The tests that say something about our strategy: they used it, and pass with the baseline as far as is known."""
    baseline = read(path_of(BASELINES[way], folder))
    return {
        test: result
        for test, result in read(path_of(way, folder)).items()
        if result.used
        and result.outcome != "skipped"
        and (result.outcome == "passed" or test not in baseline or baseline[test].outcome == "passed")
    }


def _way(way: Way, folder: Path) -> str:
    results, everything = counted(way, folder), read(path_of(way, folder))
    lines = [f"way {way}: {len(everything)} tests, {len(results)} of them count", ""]
    lines += [
        "| tests | passed | refused by name | name the class | count | failed | passed of the others | of all run |",
        "|" + "---|" * 8,
    ]
    groups: dict[str, Counter[str]] = {}
    for test, result in results.items():
        groups.setdefault(test.split("/")[0], Counter())[result.outcome] += 1
    for name, group in [*sorted(groups.items()), ("all", sum(groups.values(), Counter()))]:
        failed = group.total() - sum(group[kind] for kind in ("passed", "refused", "names", "counts"))
        share = 100 * group["passed"] / max(group["passed"] + failed, 1)
        of_all = 100 * group["passed"] / max(group.total() - group["refused"], 1)
        lines.append(
            f"| {name} | {group['passed']} | {group['refused']} | {group['names']} | {group['counts']} | {failed} | "
            f"{share:.1f} % | {of_all:.1f} % |"
        )
    lines += ["", *(f"{one.outcome}: {one.test}: {one.why}" for one in results.values() if one.outcome != "passed")]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    print(table(parser.parse_args().results))


if __name__ == "__main__":
    main()
