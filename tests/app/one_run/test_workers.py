import re

from scalebook.app.one_run.workers import peer_graph, staleness_html
from scalebook.app.shared import charts


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


def of_peers(topology: object) -> dict[str, object]:
    strategy = {"class_path": "scalebook.training.lightning.Peers", "init_args": {"topology": topology}}
    return {"trainer": {"strategy": strategy}}


def test_peers_are_drawn_on_the_graph_of_those_who_take_part() -> None:
    graph = peer_graph(of_peers({"class_path": "scalebook.training.engine.rules.topologies.Ring"}), 6, {0, 1, 3, 5})
    assert graph is not None
    assert {worker: sorted(others) for worker, others in graph.sends.items()} == {
        0: [1, 5], 1: [0, 3], 3: [1, 5], 5: [0, 3],
    }  # fmt: skip
    assert round(graph.eigenvalue, 3) == 0.333
    figure = charts.graph(graph.sends, [("#000", f"worker {worker}") for worker in range(6)])
    lines, marks = figure.data
    assert list(lines.x).count(None) == 4
    assert list(marks.hovertext) == [f"worker {worker}" for worker in range(6)]
    assert all(abs(x * x + y * y - 1) < 1e-9 for x, y in zip(marks.x, marks.y, strict=True))


def test_of_other_strategies_and_graphs_of_ones_own_none_is_drawn() -> None:
    assert peer_graph(of_peers({"class_path": "my.Web"}), 4, ()) is None
    assert peer_graph(of_peers({"class_path": "my.Ring"}), 4, ()) is None, "which is no ring of ours"
    assert peer_graph({"trainer": {"strategy": "ddp"}}, 4, ()) is None
    assert peer_graph({}, 4, ()) is None
    changing = peer_graph(of_peers("one_peer_exponential"), 4, ())
    assert changing is not None
    assert sorted(changing.sends[0]) == [1, 2]
