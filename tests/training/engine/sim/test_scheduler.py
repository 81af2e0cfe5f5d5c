"""Who goes on at a time that may turn out to be later."""

from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.sim import Line, SimulatedClock
from scalebook.training.engine.sim.scheduler import Computes, Life, Scheduler
from scalebook.training.engine.worker_clock import Until


def played(pieces: dict[int, int]) -> list[tuple[float, int]]:
    """When which worker's gradient is due, where so many pieces of a second each go over one line before it."""
    clock, line = SimulatedClock(ClockSettings(0.0), len(pieces)), Line()

    def life(worker: int) -> Life:
        left = pieces[worker]

        def later() -> float:
            nonlocal left
            if not left:
                return clock.time_s
            left -= 1
            return line.serve(clock.time_s, 1.0)

        yield Until(later(), later)
        yield Computes()

    scheduler = Scheduler(clock, lambda worker: 0.0, lambda: 0, lambda worker: None, life)
    for worker in pieces:
        scheduler.live(worker, life(worker))
    due = []
    while (one := scheduler.next()) is not None:
        due.append((clock.time_s, one))
        scheduler.go_on()
    return due


def test_a_worker_goes_on_when_it_names_no_later_time() -> None:
    assert played({0: 3}) == [(3.0, 0)]


def test_pieces_of_several_take_turns() -> None:
    """0 1 2, 0 1 2, 0 2, 2: each asks again when its own is through."""
    assert played({0: 3, 1: 2, 2: 4}) == [(5.0, 1), (7.0, 0), (9.0, 2)]


def test_whoever_dies_is_asked_no_more() -> None:
    clock, asked = SimulatedClock(ClockSettings(0.0), 1), list[float]()

    def later() -> float:
        asked.append(clock.time_s)
        return clock.time_s + 1.0

    def life() -> Life:
        yield Until(1.0, later)

    scheduler = Scheduler(clock, lambda worker: 0.0, lambda: 0, lambda worker: None, lambda worker: life())
    scheduler.live(0, life())
    assert scheduler.die(0)
    assert scheduler.next() is None
    assert asked == []
