"""What the monitors of two machines, which are two processes of this one, tell each other under each strategy."""

import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback, Trainer

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.failures import NodeLost, TimedOut
from scalebook.training.engine import served_run
from scalebook.training.engine.net import acceptor, channel, mailbox
from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.engine.served_run import Secret
from scalebook.training.lightning import DDP, AsyncPS
from scalebook.training.lightning.processes import node_monitors
from tests.training.lightning.async_ps.machines import Machine, by_hand, outcomes, together
from tests.training.lightning.async_ps.small import AtBatch, fit, trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:Using `DistributedSampler`"),  # on any number of machines
    pytest.mark.long,
    pytest.mark.usefixtures("machines_key"),
]
HOST = socket.gethostname()
DEAD_S = 3.0
ENDED_S = 8.0
"""From when a monitor knows it, until its workers have ended; measured 1 to 3 s, on a quiet machine."""
Strategy = Callable[..., Any]
each = pytest.mark.parametrize("strategy", [DDP, AsyncPS])


def waits(strategy: Strategy, deadline_s: float) -> Any:
    """The strategy, which waits so long for another machine."""
    return DDP(deadline_s=deadline_s) if strategy is DDP else AsyncPS(limits=Limits(deadline_s=deadline_s))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (mailbox, served_run, channel, acceptor):
        monkeypatch.setattr(module, "DEAD_S", DEAD_S)


def test_each_launch_is_a_run_of_its_own() -> None:
    """Whoever is faster would else meet the one before, which is about to end."""
    names = {
        node_monitors.next_run({"TORCHELASTIC_RUN_ID": 300 * "x", "TORCHELASTIC_RESTART_COUNT": str(n)})
        for n in (0, 0, 1)
    }
    assert len(names) == 3
    assert max(map(len, names)) <= 200


# --- what does not begin ---------------------------------------------------------------------------------------------


@each
def test_who_does_not_come_is_named_after_the_deadline(strategy: Strategy, tmp_path: Path) -> None:
    first, second = by_hand()
    (tmp_path / "state").mkdir()
    Secret.made(tmp_path / "state" / "key")
    for environment, missing in ((first, "node 1"), (second, "node 0")):
        with pytest.raises(TimedOut) as caught:
            together([environment], lambda: fit(trainer(tmp_path, waits(strategy, 1.5), num_nodes=2)), tmp_path)
        said = str(caught.value)
        assert said.startswith(f"trainer.num_nodes: is 2, but {missing} has not joined for 1.5 s: ")
        key = "deadline_s" if strategy is DDP else "limits.deadline_s"
        assert said.endswith(f"with its own NODE_RANK, or raise the strategy's {key}.")


def node() -> int:
    return int(os.environ["NODE_RANK"])


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            lambda: (DDP(), {"devices": 1 + node()}),
            r"trainer.devices: is 1 on node 0 .*, but 2 on node 1 .*Use the same",
        ),
        (
            lambda: (AsyncPS(), {"devices": 1 + node()}),
            r"trainer.devices: is 1 on node 0 .*, but 2 on node 1 .*Use the",
        ),
        (
            lambda: (AsyncPS(shards=1 + node()), {}),
            r"trainer.strategy: has different arguments on node 0 .*Use the same ver",
        ),
    ],
    ids=["devices of DDP", "devices of AsyncPS", "settings"],
)
def test_machines_that_are_not_started_alike_are_refused_on_both(made: Any, said: str, tmp_path: Path) -> None:
    def body() -> None:
        strategy, settings = made()
        fit(trainer(tmp_path, strategy, num_nodes=2, **settings))

    for error in outcomes(body, tmp_path):
        with pytest.raises(ConfigError, match=said):
            raise error


@each
def test_another_key_gets_nobody_in(strategy: Strategy, tmp_path: Path) -> None:
    """Whose file is named; DDP does without where none is."""

    def body() -> None:
        own = tmp_path / f"key-{node()}"
        Secret.made(own)
        os.environ["SCALEBOOK_KEY_FILE"] = str(own)
        fit(trainer(tmp_path, waits(strategy, 5.0 - 3 * node()), num_nodes=2))

    here, there = outcomes(body, tmp_path)
    assert isinstance(here, TimedOut)
    assert "node 1 has not joined" in str(here)
    assert "another key" in str(there)


@each
def test_a_key_that_is_named_and_missing_is_refused_with_what_to_do(
    strategy: Strategy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scalebook.training.lightning.processes.key_file.MAKING_S", 0.2)
    with pytest.raises(ConfigError, match=r"SCALEBOOK_KEY_FILE: names .*, which does not exist .* Copy the file from"):
        together(by_hand()[1:], lambda: fit(trainer(tmp_path, strategy(), num_nodes=2)), tmp_path)


# --- how it ends -----------------------------------------------------------------------------------------------------


class Batches(Callback):
    """Each worker leaves a mark after each of its batches; all end when `stop` is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        (self.folder / f"batch-{trainer.global_rank}").touch()
        time.sleep(0.005)
        if (self.folder / "stop").exists():
            trainer.should_stop = True


class Pair:
    """Two machines that train without end."""

    def __init__(self, strategy: Strategy, folder: Path) -> None:
        self.folder = folder

        def body() -> None:
            logging.getLogger("scalebook").addHandler(logging.FileHandler(folder / f"log-{node()}"))
            fit(trainer(folder, strategy(), num_nodes=2, max_epochs=100_000, callbacks=[Batches(folder)]))

        self.machines = [Machine(one, body, folder / f"machine-{at}") for at, one in enumerate(by_hand())]

    def trains(self, *workers: int) -> None:
        """A batch begins and ends after this."""
        for worker in workers:
            mark = self.folder / f"batch-{worker}"
            mark.unlink(missing_ok=True)
            self.wait(mark.exists)

    def wait(self, until: Callable[[], bool], seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < end
            time.sleep(0.02)

    def signal(self, machine: int, number: int) -> None:
        """To its monitor alone."""
        pid = self.machines[machine].process.pid
        assert pid is not None
        os.kill(pid, number)

    def error(self, machine: int, within_s: float) -> BaseException:
        """How it ends."""
        self.machines[machine].process.join(within_s)
        assert not self.machines[machine].process.is_alive(), f"it has not ended within {within_s:g} s"
        with pytest.raises(BaseException) as caught:  # which is the question
            self.machines[machine].result()
        return caught.value

    def end(self) -> None:
        for machine in self.machines:
            machine.end()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Callable[[Strategy], Pair]]:
    made: list[Pair] = []

    def make(strategy: Strategy) -> Pair:
        made.append(Pair(strategy, tmp_path))
        made[-1].trains(0, 1)
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.mark.parametrize("worker", [0, 1])
@each
def test_an_exception_ends_both(strategy: Strategy, worker: int, tmp_path: Path) -> None:
    def wrong(_trainer: Trainer) -> None:
        raise KeyError("a sample")

    def body() -> None:
        callbacks = [AtBatch(worker, 5, wrong)]
        fit(trainer(tmp_path, strategy(), num_nodes=2, max_epochs=100_000, callbacks=callbacks))

    found = outcomes(body, tmp_path)
    assert isinstance(found[worker], KeyError)
    assert isinstance(found[1 - worker], NodeLost)
    assert str(found[1 - worker]) == f"node {worker} ({HOST}) ended with KeyError: 'a sample'"


@each
def test_of_three_machines_the_third_is_told_which_one_ended_it(strategy: Strategy, tmp_path: Path) -> None:
    def wrong(_trainer: Trainer) -> None:
        raise KeyError("a sample")

    def body() -> None:
        callbacks = [AtBatch(1, 5, wrong)]
        fit(trainer(tmp_path, strategy(), num_nodes=3, max_epochs=100_000, callbacks=callbacks))

    first, there, third = outcomes(body, tmp_path, nodes=3)
    assert isinstance(there, KeyError)
    assert str(first) == str(third) == f"node 1 ({HOST}) ended with KeyError: 'a sample'"


SILENT = f"has been silent for {DEAD_S:g} s"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("strategy", "number", "said"),
    [
        (DDP, signal.SIGKILL, rf"node 0 \({HOST}\) has not answered at 127.0.0.1:\d+ for 3 s: channel: "),
        (
            AsyncPS,
            signal.SIGKILL,
            rf"node 0 \({HOST}\) can no longer be reached from this node, at 127.0.0.1:\d+: .* are lost$",
        ),
        (DDP, signal.SIGSTOP, rf"node 0 \({HOST}\) {SILENT}$"),
        (
            AsyncPS,
            signal.SIGSTOP,
            rf"node 0 \({HOST}\) {SILENT}. No checkpoint of the run is known here: at least .* are lost$",
        ),
    ],
    ids=["DDP killed", "AsyncPS killed", "DDP frozen", "AsyncPS frozen"],
)
def test_without_the_first_monitor_the_other_ends_with_the_cause(
    strategy: Strategy, number: int, said: str, pair: Callable[[Strategy], Pair]
) -> None:
    two = pair(strategy)
    two.signal(0, number)
    with pytest.raises(NodeLost, match=f"^{said}"):
        raise two.error(1, DEAD_S + ENDED_S)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_without_another_monitor_ddp_ends_with_the_cause(number: int, pair: Callable[[Strategy], Pair]) -> None:
    two = pair(DDP)
    two.signal(1, number)
    with pytest.raises(NodeLost, match=rf"^node 1 \({HOST}\) {SILENT}$"):
        raise two.error(0, DEAD_S + ENDED_S)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_without_another_monitor_the_parameter_server_says_so_and_trains_on(
    number: int, pair: Callable[[Strategy], Pair]
) -> None:
    """Killed, its workers die with it; frozen, they go on."""
    two = pair(AsyncPS)
    two.signal(1, number)
    log = two.folder / "log-0"
    two.wait(lambda: f"node 1 ({HOST}) {SILENT}. Training continues." in log.read_text(), DEAD_S + ENDED_S)
    if number == signal.SIGKILL:
        two.wait(lambda: f"worker 1 died: on node 1 ({HOST}), " in log.read_text(), ENDED_S)
    two.trains(*([0] if number == signal.SIGKILL else [0, 1]))
    (two.folder / "stop").touch()
    two.machines[0].result()
    if number == signal.SIGSTOP:
        two.signal(1, signal.SIGCONT)
        two.machines[1].result()


@pytest.mark.parametrize("strategy", [DDP, AsyncPS])
def test_sigterm_to_the_first_monitor_stops_both(strategy: Strategy, pair: Callable[[Strategy], Pair]) -> None:
    two = pair(strategy)
    two.signal(0, signal.SIGTERM)
    for machine in range(2):
        assert isinstance(two.error(machine, 3 * ENDED_S), SystemExit)
