import re

from scalebook.app.shared.components import bars


def test_the_split_of_time_is_drawn_as_told() -> None:
    drawn = bars.time_split([("all <b>", {"compute": 0.7, "wait": 0.05, "data": 0.0})])
    assert re.findall(r"width:([\d.]+)%;[^>]*title=\"(\w+) ([\d.]+)%\">([^<]*)<", drawn) == [
        ("70.00", "compute", "70.0", "70%"), ("5.00", "wait", "5.0", ""),
    ]  # fmt: skip
    assert "all &lt;b&gt;" in drawn
    assert re.findall(r"</i>(\w+)</span>", drawn) == ["compute", "wait", "communicate", "data"]
