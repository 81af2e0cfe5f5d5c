"""Jobs whose machines may join and leave: with how many they begin, who gets a machine that is free, what is said."""

from dataclasses import replace

from scalebook.training.jobs.devices import Lent, Machine
from scalebook.training.jobs.executors.beginning import RunPart, joined_name
from scalebook.training.jobs.executors.executor import PartEnd
from scalebook.training.jobs.gpus import Gpu
from scalebook.training.jobs.growing import Join
from scalebook.training.jobs.leases import Lease
from scalebook.training.jobs.parts import FAULTS, barred_machines
from scalebook.training.jobs.schedule import plan
from tests.training.jobs.test_schedule import request

MACHINES = [Machine([0, 1], name=name) for name in "abcd"]


def elastic(least: int = 1, nodes: int = 3, workers: int = 2, created: float = 0.0) -> Lease:
    """One that runs on a, and may have more."""
    asked = replace(request("x", workers, created=created), nodes=nodes, least=least)
    return Lease("x", "x", [0, 1], machine="a", place=(0.0, created, "x"), grows=asked)


def test_it_begins_with_as_few_as_it_needs_and_takes_what_is_free() -> None:
    asked = replace(request("x", 2), nodes=3, least=2)
    (start,) = plan([asked], [], MACHINES).starts
    assert [start.machine, *(lent.machine for lent in start.others)] == ["a", "b", "c"]
    busy = [Lease(name, name, [0], machine=name) for name in "bd"]
    (start,) = plan([asked], busy, MACHINES).starts
    assert (start.machine, start.others) == ("a", [Lent("c", [0, 1])])
    waits = plan([asked], [*busy, Lease("c", "c", [1], machine="c")], MACHINES)
    assert waits.starts == []
    assert waits.reasons["x"] == "waits for 2 cores on each of 2 machines; 1 of 2 free on b, run b has the other"
    assert plan([asked], [], MACHINES[:1]).reasons["x"] == "waits for 2 machines at once; there is 1: a"


def test_one_that_runs_gets_what_is_free_up_to_all_its_machines() -> None:
    made = plan([], [elastic()], MACHINES)
    assert made.joins == [Join("x", Lent("b", [0, 1])), Join("x", Lent("c", [0, 1]))]
    assert made.reasons == {"x": "3 of 3 machines"}
    held = replace(elastic(), others=[Lent("b", [0, 1]), Lent("c", [0, 1])])
    assert plan([], [held], MACHINES).joins == []
    assert plan([], [replace(elastic(), grows=None)], MACHINES).joins == []


def test_who_waits_comes_first_and_keeps_what_it_waits_with() -> None:
    made = plan([request("y", 2, created=1)], [elastic(created=0)], MACHINES[:2])
    assert [start.request.id for start in made.starts] == ["y"]
    assert (made.joins, made.reasons["x"]) == (
        [], "1 of 3 machines; waits for more: 2 cores; 0 of 2 free on b, run y has both"
    )  # fmt: skip
    both = replace(request("y", 2, created=1), nodes=2)
    made = plan([both], [elastic()], MACHINES[:2])
    assert (made.starts, made.joins) == ([], [])
    assert made.reasons["x"] == "1 of 3 machines; waits for more: what is free is kept for a run that waits"


def test_of_two_that_run_the_one_that_was_first_in_the_queue_gets_it() -> None:
    later = replace(elastic(created=5), id="y", name="y", machine="b")
    made = plan([], [later, elastic(created=1)], MACHINES[:3])
    assert made.joins == [Join("x", Lent("c", [0, 1]))]
    assert made.reasons["y"] == "1 of 3 machines; waits for more: 2 cores; 0 of 2 free on a, run x has both"


def test_a_machine_that_has_failed_it_or_has_no_gpu_is_not_given() -> None:
    made = plan([], [replace(elastic(), barred={"b"})], MACHINES[:2])
    assert made.joins == []
    assert made.reasons["x"] == "1 of 3 machines; waits for more: b had a part in it that ended"
    assert plan([], [elastic()], MACHINES[:1]).reasons["x"] == "1 of 3 machines; waits for more: no other is there"
    asked = replace(request("x", 1), nodes=3, least=1, accelerator="gpu")
    there = [*MACHINES[:2], Machine([0, 1], [Gpu("GPU-c", "C", 1)], "c")]
    assert plan([], [replace(elastic(), grows=asked)], there).joins == [Join("x", Lent("c", [0, 1], ["GPU-c"]))]


def test_a_machine_whose_parts_end_waits_longer_each_time_and_may_fail_three_times() -> None:
    parts = [RunPart(joined_name("x", n, 1), 1, Lent("b", [0]), 0.0) for n in range(4)]
    assert len({part.name for part in parts}) == 4
    killed = [PartEnd(100.0, cleared=True, failed=False)] * 4
    one, three = ({part.name: end for part, end in zip(parts[:n], killed, strict=False)} for n in (1, 3))
    assert (barred_machines(parts, one, 101.9), barred_machines(parts, three, 107.9)) == (
        frozenset("b"),
        frozenset("b"),
    )
    assert not barred_machines(parts, one, 102.1)
    assert not barred_machines(parts, three, 108.1)
    failed = {part.name: PartEnd(100.0, cleared=True, failed=True) for part in parts[:FAULTS]}
    assert barred_machines(parts, failed, 1e9) == {"b"}
    assert barred_machines(parts, {}, 0.0) == set()
