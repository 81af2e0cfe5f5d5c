import re

from scalebook.app.one_run.workers import staleness_html


def test_staleness_is_shown_as_shares_up_to_the_last_bin_in_use() -> None:
    drawn = staleness_html([[3, 5, 0, 0], [1, 1, 0, 0]])
    assert re.findall(r"title=\"staleness (\S+): (\d+) pushes, ([\d.]+)%\"><b>(\d+%)</b>", drawn) == [
        ("0", "4", "40.0", "40%"), ("1", "6", "60.0", "60%"),
    ]  # fmt: skip
    assert re.findall(r"height:([\d.]+)%", drawn) == ["54.7", "82.0"]
    assert re.findall(r"flex:(\d)[^>]*worker (\d): (\d)", drawn) == [
        ("3", "0", "3"), ("1", "1", "1"), ("5", "0", "5"), ("1", "1", "1"),
    ]  # fmt: skip
    last = staleness_html([[1, 0, 4]])
    assert re.findall(r"<span>([^<]*)</span>", last) == ["0", "1", "2+"], "one worker needs no legend"


def test_many_bins_have_few_labels_and_rare_ones_are_not_called_zero() -> None:
    row = [1000] + [1] * 40
    labels = re.findall(r"</div><span>([^<]*)</span>", staleness_html([row]))
    assert len(labels) == 41
    assert [one for one in labels if one][:3] == ["0", "3", "6"]
    assert "&lt;1%" in staleness_html([row])


def test_more_workers_than_colours_are_drawn_together() -> None:
    drawn = staleness_html([[1, 2]] * 11)
    assert re.findall(r"flex:(\d+)[^>]*title=\"([^\"]*)\"", drawn) == [("11", "all: 11"), ("22", "all: 22")]
