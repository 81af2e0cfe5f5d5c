import csv
from dataclasses import replace

from scalebook.app.plan.services import findings
from tests.app.plan.planned import answer


def test_names_say_what_differs() -> None:
    curve = answer().curves[0]
    assert findings.names([curve]) == ["async"]
    other = replace(curve, shards=2, network="10gbe")
    assert findings.names([curve, other]) == [
        "async · 1 shard · the profile's own links", "async · 2 shards · 10 Gbit/s Ethernet",
    ]  # fmt: skip


def test_csv_has_a_line_for_each_point() -> None:
    found = answer()
    rows = list(csv.DictReader(findings.as_csv(found).splitlines()))
    assert [(row["rule"], row["workers"]) for row in rows] == [
        (curve.rule, str(point.workers)) for curve in found.curves for point in curve.points
    ]
    assert rows[3]["samples_per_s"] == "400"
    assert float(rows[3]["speedup"]) == float(f"{400 / found.curves[0].one_per_s:.6g}")
