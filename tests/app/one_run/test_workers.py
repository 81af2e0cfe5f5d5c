import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import streamlit as st

from scalebook.app.one_run import workers
from scalebook.app.one_run.workers import peer_graph, staleness_html
from scalebook.app.shared import charts, html
from scalebook.training.base.files import records
from scalebook.training.base.files.records import BrokenRecord
from scalebook.training.engine.coordination.measures import MembershipChange, PushRecord
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.strategies import Strategy
from scalebook.training.pricing.part_record import PartRecord, PlacedLayer, WorkerPart
from scalebook.training.tracking.run_reader import MetricCurve


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


def strategy(written: object, description: Description) -> Strategy:
    return Experiment({"trainer": {"strategy": written}}, description).strategy


def of_peers(topology: object, description: Description) -> Strategy:
    peers = {"class_path": "scalebook.training.lightning.Peers", "init_args": {"topology": topology}}
    return strategy(peers, description)


def test_peers_are_drawn_on_the_graph_of_those_who_take_part(description: Description) -> None:
    graph = peer_graph(of_peers({"class_path": "scalebook.training.engine.rules.Ring"}, description), 6, {0, 1, 3, 5})
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


def test_of_other_strategies_and_graphs_of_ones_own_none_is_drawn(description: Description) -> None:
    assert peer_graph(of_peers({"class_path": "my.Web"}, description), 4, ()) is None
    assert peer_graph(of_peers({"class_path": "my.Ring"}, description), 4, ()) is None, "which is no ring of ours"
    assert peer_graph(strategy("ddp", description), 4, ()) is None
    assert peer_graph(strategy("auto", description), 4, ()) is None
    changing = peer_graph(of_peers("one_peer_exponential", description), 4, ())
    assert changing is not None
    assert sorted(changing.sends[0]) == [1, 2]


def split_record(count: int = 4, idle: float | None = 0.25) -> PartRecord:
    parts = [WorkerPart(4e3, 4e3, 8e3, 1e3 * (1 + each % 2), 5e2, each % 2, idle, 0.0, 0.1) for each in range(count)]
    layers = [PlacedLayer("enter", 8e3, 1, 0), PlacedLayer("<leave>", 1.6e4, 4, 1)]
    return PartRecord("stages 2 x data 2", layers, parts)


def test_parts_of_a_model_are_a_grid_of_layers_and_workers() -> None:
    html = workers.parts_html(split_record())
    assert html.count('class="sb-part"') == 4, "each layer on the workers of its stage"
    assert html.count(">1/4</i>") == 2
    assert 'title="worker 1: 4 kB of &lt;leave&gt;"' in html
    assert "<leave>" not in html
    assert html.count('title="optimizer state 8 kB"') == 4
    assert "height:44.44%" in html, "8 of the 18 kB of the fullest worker"
    assert html.count("pipeline fills and drains 25.0%") == 4
    assert "waits: slower or larger parts" not in html, "nobody waits for that"
    assert workers.parts_words(split_record()) == (
        "stages 2 x data 2. The parameters have 24 kB. The worker that needs most memory holds 18 kB, and per update "
        "all "
        "workers together send 2 kB."
    )


def test_a_picture_of_parts_has_room_for_some_and_says_no_waits_that_nobody_measured() -> None:
    record = split_record(81, None)
    html = workers.parts_html(replace(record, layers=[PlacedLayer(f"l{n}", float(n)) for n in range(40)]))
    assert re.findall(r"<span>(\d+)<", html) == [str(number) for number in range(workers.MOST_BARS)]
    assert html.count('class="sb-part"') == workers.MOST_BARS * workers.MOST_LAYERS
    assert "<em>16 smaller</em>" in html
    assert "l15<" not in html, "the largest are drawn"
    assert "<em>waits</em>" in html, "for the link"
    alone = replace(record, workers=[replace(worker, link=None) for worker in record.workers])
    assert "waits" not in workers.parts_html(alone)


@pytest.mark.parametrize("parts", [0, -1, 10**400])
def test_a_record_whose_layers_have_no_number_of_parts_is_broken(parts: int) -> None:
    """A folder may be a stranger's."""
    content = json.dumps({**split_record().content(), "layers": [{"name": "net", "nbytes": 8.0, "parts": parts}]})
    with pytest.raises(BrokenRecord, match="parts"):
        records.parse(Path("parts.json"), content.encode(), PartRecord)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is drawn, as text or HTML."""
    shown: list[str] = []
    monkeypatch.setattr(html, "draw", shown.append)
    for kind in ("header", "caption"):
        monkeypatch.setattr(st, kind, shown.append)
    monkeypatch.setattr(charts, "draw", lambda figure, key, alt: shown.append(key))
    return shown


def test_workers_that_are_all_alike_are_one_bar(drawn: list[str]) -> None:
    """Virtual workers spend all their time on compute: sixteen bars of 100 % say nothing more."""
    workers.time_split([("all", {"compute": 1.0}), *((f"worker {i}", {"compute": 0.999}) for i in range(16))])
    _, bars, words = drawn
    assert "all" in bars
    assert "worker 0" not in bars
    assert words == "The same chart for each of the 16 workers."
    drawn.clear()
    workers.time_split([("all", {"compute": 0.9}), ("worker 0", {"compute": 1.0}), ("worker 1", {"compute": 0.8})])
    assert "worker 1" in drawn[1]


def test_a_throughput_of_one_value_is_no_chart(drawn: list[str]) -> None:
    one, two = (MetricCurve("r", "worker_0/perf/samples_per_second", x, x, x, x) for x in ([1.0], [1.0, 2.0]))
    workers.throughput([one], "updates", "updates", simulated=True)
    assert drawn == []
    workers.throughput([two], "updates", "updates", simulated=True)
    assert drawn == ["Throughput by worker", "throughput"]


def test_who_died_did_not_leave(drawn: list[str]) -> None:
    changes = [MembershipChange(worker, 0.0, True) for worker in (0, 1)] + [MembershipChange(1, 1.0, False)]
    workers.comings(PushRecord([], comings=changes), ended=False, died={1})
    assert drawn[0] == "1 worker is taking part"
    assert drawn[1].startswith("worker 1 died ")
    drawn.clear()
    workers.comings(PushRecord([], comings=changes), ended=False)
    assert drawn[1].startswith("worker 1 left ")
