import re

from scalebook.app.shared.components import bars


def test_the_split_of_time_is_drawn_as_told() -> None:
    drawn = bars.time_split([("all <b>", {"compute": 0.7, "wait": 0.05, "data": 0.0})])
    assert re.findall(r"width:([\d.]+)%;[^>]*title=\"(\w+) ([\d.]+)%\">([^<]*)<", drawn) == [
        ("70.00", "compute", "70.0", "70%"), ("5.00", "wait", "5.0", ""),
    ]  # fmt: skip
    assert "all &lt;b&gt;" in drawn
    assert re.findall(r"</i>(\w+)</span>", drawn) == ["compute", "wait", "communicate", "data"]


def test_staleness_is_shown_as_shares_up_to_the_last_bin_in_use() -> None:
    drawn = bars.staleness([[3, 5, 0, 0], [1, 1, 0, 0]])
    assert re.findall(r"title=\"staleness (\S+): (\d+) pushes, ([\d.]+)%\"><b>(\d+%)</b>", drawn) == [
        ("0", "4", "40.0", "40%"), ("1", "6", "60.0", "60%"),
    ]  # fmt: skip
    assert re.findall(r"height:([\d.]+)%", drawn) == ["54.7", "82.0"]
    assert re.findall(r"flex:(\d)[^>]*worker (\d): (\d)", drawn) == [
        ("3", "0", "3"), ("1", "1", "1"), ("5", "0", "5"), ("1", "1", "1"),
    ]  # fmt: skip
    last = bars.staleness([[1, 0, 4]])
    assert re.findall(r"<span>([^<]*)</span>", last) == ["0", "1", "2+"], "one worker needs no legend"


def test_many_bins_have_few_labels_and_rare_ones_are_not_called_zero() -> None:
    row = [1000] + [1] * 40
    labels = re.findall(r"</div><span>([^<]*)</span>", bars.staleness([row]))
    assert len(labels) == 41
    assert [one for one in labels if one][:3] == ["0", "3", "6"]
    assert "&lt;1%" in bars.staleness([row])


def test_more_workers_than_colours_are_drawn_together() -> None:
    drawn = bars.staleness([[1, 2]] * 11)
    assert re.findall(r"flex:(\d+)[^>]*title=\"([^\"]*)\"", drawn) == [("11", "all: 11"), ("22", "all: 22")]
