"""Order, leases and reasons, without a clock or a process."""

import math
from dataclasses import replace
from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from scalebook.training.jobs.begin_request import RunPart, joined_name
from scalebook.training.jobs.devices import Allocation, NodeDevices
from scalebook.training.jobs.executor import PartEnd
from scalebook.training.jobs.gpus import Gpu
from scalebook.training.jobs.job_folder import JobRequest, TrialOf
from scalebook.training.jobs.job_nodes import FAULTS, barred_machines
from scalebook.training.jobs.leases import Lease, place_of
from scalebook.training.jobs.schedule import STARTS, Join, plan

TWO = NodeDevices([0, 1])
GPUS = NodeDevices(list(range(8)), [Gpu("GPU-a", "A", 1000), Gpu("GPU-b", "B", 1000)])
SOCKETS = NodeDevices(list(range(16)), [Gpu(f"GPU-{n}", "H100", 80000, list(range(8 * (n // 4), 8 * (n // 4) + 8)))
                                    for n in range(8)])  # fmt: skip
FOUR = NodeDevices([0, 1, 2, 3])
MACHINES = [NodeDevices([0, 1], name=name) for name in "abcd"]


def request(name: str, workers: int = 1, *, threads: int = 1, created: float = 0.0, priority: int = 0) -> JobRequest:
    return JobRequest(name, created, "e", "", 1, workers, threads, priority=priority, name=name)


def on_gpu(name: str, workers: int = 1) -> JobRequest:
    return JobRequest(name, 0.0, "e", "", 1, workers, accelerator="gpu", name=name)


def test_a_job_gets_workers_times_threads_distinct_cores_or_all() -> None:
    made = plan([request("a", 2, threads=2)], [], [NodeDevices([2, 3, 5, 7, 11])])
    assert made.starts[0].cores == [2, 3, 5, 7]
    assert plan([request("a", 40)], [], [TWO]).starts[0].cores == [0, 1]
    assert made.reasons == {"a": STARTS}


def test_jobs_side_by_side_hold_different_cores() -> None:
    made = plan([request("b", created=2), request("a", created=1)], [], [TWO])
    assert [(start.request.id, start.cores) for start in made.starts] == [("a", [0]), ("b", [1])]


def test_a_trial_whose_times_are_compared_has_the_machine_for_itself() -> None:
    alone = replace(request("a", created=1), trial=TrialOf("a search", 0, exclusive=True))
    made = plan([alone, request("b", created=2)], [], [GPUS])
    assert [(start.request.id, start.cores, start.gpus) for start in made.starts] == [
        ("a", GPUS.cores, ["GPU-a", "GPU-b"])
    ]
    assert made.reasons["b"] == "waits for 1 core; 0 of 8 free, run a has all"
    waiting = plan([alone], [Lease("x", "x", [0])], [TWO])
    assert waiting.reasons["a"] == "waits for 2 cores; 1 of 2 free, run x has the other"


def test_the_reason_names_what_is_lacking_who_has_it_and_for_how_long() -> None:
    made = plan([request("a", 2)], [Lease("x", "pixelcnn", [1], left_s=40.0)], [TWO])
    assert made.starts == []
    assert made.reasons == {"a": "waits for 2 cores; 1 of 2 free, run pixelcnn has the other, about 40 s left"}


def test_the_time_left_is_that_of_the_run_whose_end_suffices() -> None:
    running = [Lease("x", "x", [0, 1], left_s=600.0), Lease("y", "y", [2], left_s=30.0), Lease("z", "z", [3])]
    made = plan([request("a", 3)], running, [NodeDevices([0, 1, 2, 3])])
    assert (
        made.reasons["a"] == "waits for 3 cores; 0 of 4 free, runs x (2), y (1) and z (1) have all, about 10 min left"
    )
    unknown = plan([request("a", 4)], running, [NodeDevices([0, 1, 2, 3])])
    assert unknown.reasons["a"] == "waits for 4 cores; 0 of 4 free, runs x (2), y (1) and z (1) have all"


def test_a_small_job_does_not_overtake_a_big_one_that_waits_for_the_same() -> None:
    made = plan(
        [request("big", 2), request("small", created=1), request("next", created=2)], [Lease("x", "x", [0])], [TWO]
    )
    assert made.starts == []
    assert made.reasons["small"] == "behind 1 run"
    assert made.reasons["next"] == "behind 2 runs"


def test_a_small_job_takes_what_a_big_one_will_not_need_whichever_runs_end_first() -> None:
    four = NodeDevices([0, 1, 2, 3])
    big, small = request("big", 3), request("small", created=1)
    made = plan([big, small, request("next", created=2)], [Lease("x", "x", [0, 1])], [four])
    assert [(start.request.id, start.cores) for start in made.starts] == [("small", [3])]  # x ends: 3 of 4 are enough
    assert made.reasons["big"] == "waits for 3 cores; 2 of 4 free, run x has the others"
    assert made.reasons["next"] == "behind 1 run"
    one_each = [Lease("x", "x", [0]), Lease("y", "y", [1])]
    assert plan([big, small], one_each, [four]).starts == []  # either of them ends: all that is free then is needed
    wide = [Lease("x", "x", [0]), Lease("y", "y", [1, 2])]
    assert plan([big, small], wide, [four]).starts == []  # y ends: the same


def test_a_job_goes_where_it_fits_and_waits_where_least_is_lacking() -> None:
    here, there = NodeDevices([0, 1], name="here"), NodeDevices([0, 1, 2, 3], [Gpu("GPU-a", "A", 1)], "there")
    made = plan([request("a", 2), request("b", 2, created=1), replace(on_gpu("c"), created=2)], [], [here, there])
    placed = {start.request.id: (start.machine, start.cores, start.gpus) for start in made.starts}
    assert placed == {"a": ("here", [0, 1], []), "b": ("there", [0, 1], []), "c": ("there", [2, 3], ["GPU-a"])}
    running = [Lease("x", "x", [0, 1], machine="here"), Lease("y", "y", [0, 1, 2], machine="there")]
    waits = plan([request("a", 2), request("b", 1, created=1)], running, [here, there])
    assert waits.reasons == {
        "a": "waits for 2 cores; 1 of 4 free on there, run y has the others",
        "b": STARTS,  # y ends with more than a needs
    }


def on_two(name: str, workers: int = 1, *, created: float = 0.0) -> JobRequest:
    return replace(request(name, workers, created=created), nodes=2)


def test_a_job_on_two_machines_has_as_much_of_each_at_once_or_nothing() -> None:
    machines = [NodeDevices([0, 1], name="a"), NodeDevices([0, 1, 2], name="b"), NodeDevices([0, 1], name="c")]
    made = plan([on_two("x", 2), request("y", created=1)], [], machines)
    (first, one) = made.starts
    assert (first.machine, first.cores, first.others) == ("a", [0, 1], [Allocation("b", [0, 1])])
    assert (one.machine, one.cores) == ("b", [2])
    held = [start.lease for start in made.starts]
    waits = plan([on_two("z", 2)], held, machines)
    assert waits.starts == []
    assert waits.reasons["z"] == "waits for 2 cores on each of 2 nodes; 0 of 2 free on a, run x has both"
    (late,) = plan([on_two("z", 2)], held[1:], machines).starts  # c and a are free, of b only two cores
    assert {late.machine, *(lent.machine for lent in late.others)} == {"a", "b"}
    alone = plan([on_two("z")], [], machines[:1])
    assert alone.reasons["z"] == "waits for 2 nodes at once, but there is only 1: a"


def test_a_job_that_no_machine_holds_is_spread_over_as_few_as_hold_it() -> None:
    small, *four = NodeDevices([0], name="s"), *(NodeDevices([0, 1, 2, 3], name=name) for name in "abc")
    wide = replace(request("x", 8), spreads=True)
    (start,) = plan([wide], [], [small, *four]).starts
    assert (start.machine, start.cores, start.others) == ("a", [0, 1, 2, 3], [Allocation("b", [0, 1, 2, 3])])
    (start,) = plan([replace(wide, workers=9)], [], [small, *four]).starts
    assert [start.machine, *(lent.machine for lent in start.others)] == ["a", "b", "c"]
    assert len(start.cores) == 3
    (start,) = plan([replace(wide, workers=4)], [], [small, *four]).starts
    assert (start.machine, start.others) == ("s", [])  # it is free; sharing a core there is nothing new
    busy = [Lease("r", "r", [0], machine=name) for name in "abc"]
    waits = plan([wide], busy, four)
    assert waits.reasons["x"] == "waits for 4 cores on each of 2 nodes; 3 of 4 free on a, run r has the other"


def test_why_workers_share_devices_is_said() -> None:
    machines = [NodeDevices([0, 1], name="a"), NodeDevices([0, 1], name="b")]
    busy = [Lease("r", "r", [0], machine=name) for name in "ab"]
    waits = "waits for 2 cores; 1 of 2 free on a, run r has the other; the"
    assert plan([request("x", 4)], busy, machines).reasons["x"] == (
        f"{waits} 4 workers of this run will share devices, because only DDP is spread over nodes automatically (for "
        "other strategies, set trainer.num_nodes)"
    )
    assert plan([replace(request("x", 5), spreads=True)], busy, machines).reasons["x"] == (
        f"{waits} 5 workers of this run will share devices, because the nodes have no room for equal numbers of workers"
    )


def test_a_trial_that_holds_all_machines_is_alone_on_each() -> None:
    machines = [NodeDevices([0, 1], name="a"), NodeDevices([0, 1], name="b")]
    alone = replace(request("x"), trial=TrialOf("a search", 0, exclusive=True, holds_all=True))
    made = plan([alone, request("y", created=1)], [], machines)
    (start,) = made.starts
    assert (start.machine, start.cores, start.others) == ("a", [0, 1], [Allocation("b", [0, 1], idle=True)])
    assert made.reasons["y"] == "waits for 1 core; 0 of 2 free on a, run x has both"
    waits = plan([alone], [Lease("r", "r", [0], machine="b")], machines)
    assert waits.reasons["x"] == "waits for 2 cores; 1 of 2 free on b, run r has the other"
    both = replace(alone, nodes=2, trial=TrialOf("a search", 0, exclusive=True))
    (start,) = plan([both], [], machines).starts
    assert (start.cores, start.others) == ([0, 1], [Allocation("b", [0, 1])])


def test_two_jobs_on_the_same_machines_do_not_wait_for_each_other() -> None:
    """What one that waits needs of each of its machines is kept, so single ones do not starve it."""
    machines = [NodeDevices([0, 1], name="a"), NodeDevices([0, 1], name="b")]
    busy = [Lease("r", "r", [0], machine="b")]
    waiting = [on_two("x", 2), on_two("y", 2, created=1), request("small", created=2)]
    made = plan(waiting, busy, machines)
    assert made.starts == []
    assert made.reasons == {
        "x": "waits for 2 cores on each of 2 nodes; 1 of 2 free on b, run r has the other",
        "y": "behind 1 run",
        "small": "behind 2 runs",
    }
    (first,) = plan(waiting, [], machines).starts
    assert first.request.id == "x"


def test_a_job_passes_one_that_waits_for_something_else() -> None:
    running = [Lease("x", "x", [0], ["GPU-a"]), Lease("y", "y", [1], ["GPU-b"])]
    made = plan([on_gpu("gpu job"), request("cpu job", 4, created=1)], running, [GPUS])
    assert [(start.request.id, start.cores) for start in made.starts] == [("cpu job", [3, 4, 5, 6])]
    assert made.reasons["gpu job"] == "waits for 1 GPU; 0 of 2 free, runs x (1) and y (1) have both"


def test_a_gpu_job_holds_as_many_gpus_as_it_has_devices_and_shares_when_there_are_fewer() -> None:
    one = plan([on_gpu("a"), on_gpu("b")], [], [GPUS]).starts
    assert [start.gpus for start in one] == [["GPU-a"], ["GPU-b"]]
    four = plan([on_gpu("a", workers=4)], [], [GPUS]).starts[0]
    assert (four.gpus, four.cores) == (["GPU-a", "GPU-b"], [0, 1, 2, 3, 4, 5, 6, 7])
    on_one = plan([replace(on_gpu("a", workers=4), devices=1)], [], [GPUS]).starts[0]
    assert (on_one.gpus, on_one.cores) == (["GPU-a"], [0, 1, 2, 3])
    assert plan([replace(on_gpu("a"), devices=2)], [], [GPUS]).starts[0].gpus == ["GPU-a"]  # no worker for the other


def test_a_gpu_job_gets_its_share_of_the_cores_near_its_gpus() -> None:
    starts = plan([on_gpu("a", 3), on_gpu("b", 2), on_gpu("c", 2)], [], [SOCKETS]).starts
    assert [(start.gpus, start.cores) for start in starts] == [
        (["GPU-0", "GPU-1", "GPU-2"], [0, 1, 2, 3, 4, 5]),
        (["GPU-4", "GPU-5"], [8, 9, 10, 11]),  # not one of each socket
        (["GPU-6", "GPU-7"], [12, 13, 14, 15]),
    ]
    threads = plan([replace(on_gpu("a", 2), threads=5)], [], [SOCKETS]).starts[0]
    assert threads.cores == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]  # its threads are more than its share
    busy = plan([on_gpu("a", 4)], [Lease("x", "x", list(range(11)))], [SOCKETS]).starts[0]
    assert busy.cores == [11, 12, 13, 14, 15]  # it waits for a core for each worker alone


def test_instances_of_a_gpu_are_lent_one_a_job() -> None:
    cut = [Gpu("MIG-a", "1g", 10000), Gpu("MIG-b", "1g", 10000)]
    made = plan([on_gpu("a", 2), on_gpu("b")], [], [NodeDevices(list(range(8)), cut)])
    assert [(start.gpus, len(start.cores)) for start in made.starts] == [(["MIG-a"], 4), (["MIG-b"], 4)]
    mixed = NodeDevices(list(range(8)), [*cut, Gpu("GPU-a", "A", 1), Gpu("GPU-b", "B", 1)])
    assert plan([on_gpu("a", 4)], [], [mixed]).starts[0].gpus == ["GPU-a", "GPU-b"]
    waits = plan([on_gpu("a", 2)], [Lease("x", "x", [0], ["GPU-a"])], [mixed])
    assert waits.reasons["a"] == "waits for 2 GPUs; 1 of 2 free, run x has the other"


def sharing(name: str, share: float, created: float = 0.0) -> JobRequest:
    return replace(on_gpu(name), gpu_share=share, created=created)


def lent(
    waiting: list[JobRequest], running: list[Lease] | None = None, machine: NodeDevices = GPUS
) -> dict[str, list[str]]:
    return {start.request.id: start.gpus for start in plan(waiting, running or [], [machine]).starts}


def test_runs_that_say_so_share_a_gpu_up_to_its_memory() -> None:
    three = [sharing(name, 1 / 3, created) for created, name in enumerate("abc")]
    assert lent(three) == {"a": ["GPU-a"], "b": ["GPU-a"], "c": ["GPU-a"]}
    assert lent([*three, sharing("d", 0.01, 3)])["d"] == ["GPU-b"]
    made = plan([sharing("a", 0.5)], [], [GPUS])
    assert made.starts[0].cores == [0, 1]  # of 4 that go with the GPU
    assert lent([on_gpu("whole"), sharing("a", 0.5, 1)]) == {"whole": ["GPU-a"], "a": ["GPU-b"]}
    assert lent([sharing("a", 0.6), sharing("b", 0.6, 1), sharing("c", 0.3, 2)]) == {
        "a": ["GPU-a"], "b": ["GPU-b"], "c": ["GPU-a"],
    }  # fmt: skip


def test_nobody_joins_a_gpu_while_one_that_came_earlier_waits_for_it() -> None:
    """Else small runs, one after the other, would keep it for ever."""
    one = NodeDevices(list(range(8)), [Gpu("GPU-a", "A", 1000)])
    running = [Lease("x", "x", [0], ["GPU-a"], share=0.25)]
    assert lent([sharing("a", 0.5, 2)], running, one) == {"a": ["GPU-a"]}
    made = plan([replace(on_gpu("whole"), created=1), sharing("a", 0.5, 2)], running, [one])
    assert made.starts == []
    assert made.reasons == {"whole": "waits for 1 GPU; 0 of 1 free, run x has it", "a": "behind 1 run"}


def test_a_shared_gpu_is_free_when_the_last_of_its_runs_ends() -> None:
    running = [
        Lease("x", "x", [0], ["GPU-a"], 10.0, share=0.25), Lease("y", "y", [1], ["GPU-a"], 600.0, share=0.25),
        Lease("z", "z", [2], ["GPU-b"], 3600.0),
    ]  # fmt: skip
    made = plan([on_gpu("whole")], running, [GPUS])
    assert made.reasons["whole"] == "waits for 1 GPU; 0 of 2 free, runs y (1) and z (1) have both, about 10 min left"


def test_a_gpu_job_without_gpus_waits_alone() -> None:
    made = plan([on_gpu("a"), request("b", created=1)], [], [TWO])
    assert made.reasons == {"a": "waits for a GPU, but this machine has none", "b": STARTS}


def test_priority_goes_before_age() -> None:
    made = plan([request("old", 2), request("urgent", 2, created=9, priority=1)], [], [TWO])
    assert [start.request.id for start in made.starts] == ["urgent"]
    assert made.reasons["old"] == "waits for 2 cores; 0 of 2 free, run urgent has both"


def started(waiting: list[JobRequest], running: list[Lease], lasts: dict[str, float]) -> list[str]:
    return [start.request.id for start in plan(waiting, running, [FOUR], lasts).starts]


def test_a_job_that_will_have_ended_by_then_uses_what_the_first_waits_with() -> None:
    running = [Lease("x", "x", [0, 1, 2], left_s=60.0)]
    waiting = [request("big", 4), request("brief", created=1)]
    assert started(waiting, running, {"brief": 60.0}) == ["brief"]
    assert started(waiting, running, {"brief": 61.0}) == []
    assert started(waiting, running, {}) == []  # how long it takes is not known
    assert started(waiting, [Lease("x", "x", [0, 1, 2])], {"brief": 1.0}) == []  # when the first can start is not


def test_a_job_of_any_length_uses_what_the_first_will_not_need_when_it_can_start() -> None:
    running = [Lease("x", "x", [0, 1], left_s=10.0), Lease("y", "y", [2], left_s=1000.0)]
    waiting = [request("big", 2), request("long", created=1), request("next", created=2)]
    assert started(waiting, running, {}) == ["long"]  # x ends first: 3 are free then
    assert started(waiting, [running[0], Lease("y", "y", [2], left_s=5.0)], {}) == []  # y ends first: 2 are


def test_nobody_is_passed_for_ever_where_estimates_are_wrong() -> None:
    """Those that passed do not count for when the first can start; when the others have ended, nobody else passes."""
    big = request("big", 4)
    passed = Lease("p", "p", [0], left_s=1000.0, place=place_of(request("p", created=1)))
    assert started([big, request("brief", created=2)], [passed], {"brief": 1.0}) == []
    before = Lease("x", "x", [1], left_s=50.0, place=place_of(request("x", created=-1)))
    assert started([request("two", 3), request("brief", created=2)], [passed, before], {"brief": 1.0}) == ["brief"]
    assert started([big, request("brief", created=2)], [passed, before], {"brief": 1.0}) == []


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 30), st.booleans()), min_size=2, max_size=7),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 30)), max_size=3),
)
@example([(3, 1, False), (1, 2, True), (1, 2, True)], [(1, 1), (1, 2), (1, 3)])  # who passed ends first of all
def test_with_true_estimates_the_first_starts_as_early_as_alone_and_no_core_is_idle_for_nothing(
    asked: list[tuple[int, int, bool]], held: list[tuple[int, int]]
) -> None:
    """Whoever passes it: of the jobs behind it some tell how long they last, the others last for ever."""
    free, running = list(FOUR.cores), []
    for index, (count, left_s) in enumerate(held):
        if count <= len(free):
            running.append(Lease(f"run {index}", "", free[:count], left_s=float(left_s)))
            free = free[count:]
    waiting = [request(str(index), workers, created=index) for index, (workers, _, _) in enumerate(asked)]
    lasts = {str(index): float(told) for index, (_, told, known) in enumerate(asked) if known}
    alone = _start_of_first(waiting[:1], running, lasts)
    assert _start_of_first(waiting, running, lasts) == alone
    starts = plan(waiting, running, [FOUR], lasts).starts
    spare = len(free) - sum(len(start.cores) for start in starts)
    idle = [one for one in waiting[1:] if lasts.get(one.id, math.inf) <= alone and one.workers <= spare]
    assert [one.id for one in idle if one.id not in {start.request.id for start in starts}] == []


def _start_of_first(waiting: list[JobRequest], running: list[Lease], lasts: dict[str, float]) -> float:
    """When the first starts, s from now."""
    now = 0.0
    while True:
        starts = plan(waiting, running, [FOUR], lasts).starts
        if waiting[0].id in {start.request.id for start in starts}:
            return now
        running = [*running, *(start.lease for start in starts)]
        waiting = [one for one in waiting if one.id not in {start.request.id for start in starts}]
        step = min(one.left_s for one in running if one.left_s is not None)
        now += step
        aged = [one if one.left_s is None else replace(one, left_s=one.left_s - step) for one in running]
        running = [one for one in aged if one.left_s is None or one.left_s > 0]


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=6),
    st.lists(st.integers(1, 4), max_size=4),
    st.integers(1, 8),
    st.randoms(use_true_random=False),
)
def test_nobody_behind_the_first_delays_it(asked: list[int], held: list[int], cores: int, random: Random) -> None:
    """Runs end in any order: the first of the queue starts after the same end, whoever else was started before it."""
    machine, free = NodeDevices(list(range(cores))), list(range(cores))
    running: list[Lease] = []
    for index, count in enumerate(held):
        running += [Lease(f"run {index}", "", free[:count])] if count <= len(free) else []
        free = free[count:] if count <= len(free) else free
    waiting = [request(str(index), workers, created=index) for index, workers in enumerate(asked)]
    passed = [
        Lease(start.request.id, "", start.cores)
        for start in plan(waiting, running, [machine]).starts
        if start.request.id != "0"
    ]
    while True:
        alone = plan(waiting[:1], running, [machine]).starts
        beside = plan(waiting[:1], [*running, *passed], [machine]).starts
        assert [start.request.id for start in beside] == [start.request.id for start in alone]
        if alone:
            break
        running.remove(random.choice(running))


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.integers(1, 3), st.integers(-1, 1), st.sampled_from([0.0, 0.3, 0.5, 1.0])),
        max_size=12,
    ),
    st.integers(1, 8),
    st.integers(0, 3),
)
def test_all_jobs_get_their_turn_and_no_device_is_lent_twice(
    asked: list[tuple[int, int, int, float]], cores: int, gpus: int
) -> None:
    """The last of the four: its share of one GPU, 0 of none."""
    machine = NodeDevices(list(range(cores)), [Gpu(f"GPU-{index}", "", 0) for index in range(gpus)])
    waiting = [
        JobRequest(str(i), i, "e", "", 1, w, t, accelerator="gpu", priority=p, gpu_share=share, devices=int(share < 1))
        if share and gpus
        else JobRequest(str(i), i, "e", "", 1, w, t, priority=p)
        for i, (w, t, p, share) in enumerate(asked)
    ]
    running: list[Lease] = []
    for _ in range(2 * len(asked)):
        everything_free = not running
        made = plan(waiting, running, [machine])
        assert set(made.reasons) == {one.id for one in waiting}
        head = sorted(waiting, key=lambda one: (-one.priority, one.created))[:1]
        running += [start.lease for start in made.starts]
        held = [core for lease in running for core in lease.cores]
        shares = [sum(lease.share for lease in running if gpu.uuid in lease.gpus) for gpu in machine.gpus]
        assert len(held) == len(set(held))
        assert all(share <= 1 + 1e-6 for share in shares)
        started = {start.request.id for start in made.starts}
        if everything_free:  # then the first of the queue must have started
            assert {one.id for one in head} <= started
        waiting = [one for one in waiting if one.id not in started]
        running = running[1:]
    assert waiting == []


def test_data_that_do_not_travel_choose_the_machine() -> None:
    a, b = NodeDevices([0, 1], name="a", has=["/w/data"]), NodeDevices([0, 1, 2], name="b", has=["/w/more"])
    asked = replace(request("x"), stays={"data.root": "/w/data"})
    assert [start.machine for start in plan([asked], [], [b, a]).starts] == ["a"]
    assert [start.machine for start in plan([asked], [], [TWO]).starts] == [""]  # it was submitted here
    busy = plan([asked, request("y", created=1)], [Lease("z", "z", [0, 1], machine="a")], [b, a])
    assert busy.reasons["x"] == "waits for 1 core; 0 of 2 free on a, run z has both"
    assert [start.request.id for start in busy.starts] == ["y"]
    both = plan([replace(asked, nodes=2), request("y", created=1)], [], [a, b])
    assert both.reasons["x"] == (
        "waits for a node with /w/data (data.root), missing on b; copy the files to the same path on a node"
    )
    assert [start.request.id for start in both.starts] == ["y"]


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
    assert (start.machine, start.others) == ("a", [Allocation("c", [0, 1])])
    waits = plan([asked], [*busy, Lease("c", "c", [1], machine="c")], MACHINES)
    assert waits.starts == []
    assert waits.reasons["x"] == "waits for 2 cores on each of 2 nodes; 1 of 2 free on b, run b has the other"
    assert plan([asked], [], MACHINES[:1]).reasons["x"] == "waits for 2 nodes at once, but there is only 1: a"


def test_one_that_runs_gets_what_is_free_up_to_all_its_machines() -> None:
    made = plan([], [elastic()], MACHINES)
    assert made.joins == [Join("x", Allocation("b", [0, 1])), Join("x", Allocation("c", [0, 1]))]
    assert made.reasons == {"x": "3 of 3 nodes"}
    held = replace(elastic(), others=[Allocation("b", [0, 1]), Allocation("c", [0, 1])])
    assert plan([], [held], MACHINES).joins == []
    assert plan([], [replace(elastic(), grows=None)], MACHINES).joins == []


def test_who_waits_comes_first_and_keeps_what_it_waits_with() -> None:
    made = plan([request("y", 2, created=1)], [elastic(created=0)], MACHINES[:2])
    assert [start.request.id for start in made.starts] == ["y"]
    assert (made.joins, made.reasons["x"]) == (
        [], "1 of 3 nodes; waits for more: 2 cores; 0 of 2 free on b, run y has both"
    )  # fmt: skip
    both = replace(request("y", 2, created=1), nodes=2)
    made = plan([both], [elastic()], MACHINES[:2])
    assert (made.starts, made.joins) == ([], [])
    assert made.reasons["x"] == "1 of 3 nodes; waits for more: the free devices are reserved for a waiting run"


def test_of_two_that_run_the_one_that_was_first_in_the_queue_gets_it() -> None:
    later = replace(elastic(created=5), id="y", name="y", machine="b")
    made = plan([], [later, elastic(created=1)], MACHINES[:3])
    assert made.joins == [Join("x", Allocation("c", [0, 1]))]
    assert made.reasons["y"] == "1 of 3 nodes; waits for more: 2 cores; 0 of 2 free on a, run x has both"


def test_a_machine_that_has_failed_it_or_has_no_gpu_is_not_given() -> None:
    made = plan([], [replace(elastic(), barred={"b"})], MACHINES[:2])
    assert made.joins == []
    assert made.reasons["x"] == "1 of 3 nodes; waits for more: the run's part on b has ended"
    assert plan([], [elastic()], MACHINES[:1]).reasons["x"] == "1 of 3 nodes; waits for more: there is no other node"
    asked = replace(request("x", 1), nodes=3, least=1, accelerator="gpu")
    there = [*MACHINES[:2], NodeDevices([0, 1], [Gpu("GPU-c", "C", 1)], "c")]
    assert plan([], [replace(elastic(), grows=asked)], there).joins == [Join("x", Allocation("c", [0, 1], ["GPU-c"]))]


def test_a_machine_whose_parts_end_waits_longer_each_time_and_may_fail_three_times() -> None:
    parts = [RunPart(joined_name("x", n, 1), 1, Allocation("b", [0]), 0.0) for n in range(4)]
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
