"""The monitors of a run's nodes: who has come, whether all were started alike, who lives, how it ends.

One protocol for every strategy: short texts `[kind, value]` over the authenticated channel. The first node hears all
others; what it sends is for all of them.

| from another | from the first |
|---|---|
| `config`, `came`: its hello | `here`: its own; `met`, `refused`: who was started alike, or not; `all` have come |
| `arrived`: at so many meetings before training | `least`: where the last one is |
| `stop`: a SIGTERM has come | |
| `stop_monitoring`: how it ended there | `stop_monitoring`: how it ended on this machine, which ends it on all |
| `silent`: it does not show itself | `silent`: the first does not; both say the process at the port |

The strategy decides what an end on one node means for the others: `ends_all`.
"""

import json
import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from itertools import count
from typing import Any, ClassVar, Final, NoReturn

from typing_extensions import override

from scalebook.training.base import ConfigError, NodeLost, NodeRank, TimedOut, WorkerLost, node_rank
from scalebook.training.engine import served_run
from scalebook.training.lightning.processes.forked import fork, holding_back_sigterm, new_mark
from scalebook.training.lightning.processes.peer_monitor import (
    ALIKE,
    ExitReason,
    NodeEnd,
    NodeHello,
    PeerMonitor,
    end_of,
    refuse_unlike,
)

MEETS_S: Final = 0.05
"""Interval between checks of the others until they have met, s: workers on other nodes wait for it."""
FIND_S: Final = 0.5
"""How long one attempt to reach the first node may take, s."""
CAUSE_S: Final = served_run.DEAD_S + 4 * served_run.PULSE_S
"""How long a node that ends because another is gone waits for the reason, s: until silence is one."""
BEGUN: Final = 1 << 30
"""The number of meetings of a worker before training."""
KEYS: Final = 12
"""The most keys of a config in one text."""
KEY_CHARACTERS: Final = 250
"""The longest key, characters; only the user's own classes have longer ones."""
_CAUSES: Final = (ExitReason.DIED, ExitReason.SILENT, ExitReason.RAISED, ExitReason.STOPPED)
EVERY_END: Final = frozenset(ExitReason)
"""`ends_all` of a strategy that needs every node."""
_launches: Iterator[int] = count()  # the same in all processes of a run, which launch the same Trainers in turn


def next_run(environment: Mapping[str, str]) -> str:
    """A name for the next launch, the same on all nodes."""
    return served_run.run_name(environment, next(_launches))


class NodeMonitor(PeerMonitor):
    """What the monitors of the first node and of others share. `ends_all`: which ends on other nodes end the whole
    run."""

    DEADLINE: ClassVar[str] = "deadline_s"
    """The strategy's argument of the deadline."""

    def __init__(
        self,
        place: NodeRank,
        met: served_run.StartSignal,
        me: NodeHello,
        deadline_s: float,
        ends_all: Collection[ExitReason],
    ) -> None:
        self.await_met = met.wait
        """Wait in a worker, up to a deadline in s, until all nodes have come; returns the first node's number."""
        self._place, self._met, self._me, self._deadline_s, self._ends_all = place, met, me, deadline_s, ends_all
        self._hellos: dict[int, NodeHello] = {place.index: me}
        self._ends: dict[int, NodeEnd] = {}  # elsewhere
        self._raised: BaseException | None = None  # because of one of these
        self._arrived = self._least = 0
        self._until = 0.0
        self._is_met = self._have_begun = self._has_told = False

    @override
    def start_monitoring(self) -> None:
        self._until = time.monotonic() + self._deadline_s

    @override
    def look_s(self) -> float:
        return served_run.PULSE_S if self._is_met else MEETS_S

    def arrived(self, meetings: int) -> bool:
        """Report how many meetings before training all workers here have reached.

        Returns whether no worker on another node has reached fewer, so that none waits for another node.
        """
        self._arrived = meetings
        return self._have_begun and meetings <= self._least

    def name(self, machine: int) -> str:
        """`node 1 (host)`."""
        host = f" ({self._hellos[machine].host})" if machine in self._hellos else ""
        return f"node {machine // self._place.tasks}{host}"

    def ended(self, machine: int, end: NodeEnd) -> BaseException:
        """The exception that another node's end raises here."""
        if end.reason is ExitReason.STOPPED:
            return SystemExit(128 + signal.SIGTERM)
        if end.reason is ExitReason.DIED:
            return WorkerLost(end.worker, f"on {self.name(machine)}, {end.cause}")
        if end.reason is ExitReason.SILENT:
            return NodeLost(f"{self.name(machine)} {end.cause}")
        return NodeLost(f"{self.name(machine)} ended with {end.cause}")

    def _cause(self) -> tuple[int, NodeEnd] | None:
        """What has ended the run elsewhere, and where."""
        ends = [
            (reason, node)
            for node, (reason, *_) in self._ends.items()
            if reason in _CAUSES and self._ends_it(node, reason)
        ]
        if not ends:
            return None
        _, node = min(ends, key=lambda end: (_CAUSES.index(end[0]), end[1]))
        return node, self._ends[node]

    def _ends_it(self, machine: int, reason: ExitReason) -> bool:
        """Whether such an end there is everybody's."""
        return True

    def _raise_cause(self) -> None:
        if (cause := self._cause()) is not None:
            self._raised = self.ended(*cause)
            raise self._raised

    def _missing(self, who: str, where: str) -> TimedOut:
        """Of a machine that has not come."""
        return TimedOut(
            f"{node_rank.NODES}: is {self._place.nodes}, but {who} for {self._deadline_s:g} s: {where}. Start the same "
            f"command there, with its own NODE_RANK, or raise the strategy's {self.DEADLINE}."
        )


class FirstMonitor(NodeMonitor):
    """The monitor of the first node, to whose port the others connect; a forked process keeps that port. `meets_at`: a
    number for the workers of all nodes, sent when all have come."""

    def __init__(
        self,
        place: NodeRank,
        mailbox: served_run.MonitorMailbox,
        me: NodeHello,
        deadline_s: float,
        ends_all: Collection[ExitReason] = EVERY_END,
        meets_at: int = 1,
    ) -> None:
        super().__init__(place, mailbox.met, me, deadline_s, ends_all)
        self._mailbox, self._meets_at = mailbox, meets_at
        self._configs: dict[int, dict[str, str]] = {}  # of machines that are coming
        self._arrivals: dict[int, int] = {}
        self._is_stopping = False
        with holding_back_sigterm() as mask:
            self._keeper = fork("server", 0, lambda _: mailbox.serve_until_over(), 1, [], mask, new_mark())
        self._say("here", me._replace(config={}))

    @override
    def check(self, stopping: bool) -> None:
        self._is_stopping |= stopping
        self.receive()
        if not self._is_met and self.may_begin():
            self._is_met = True
            self._met.set(self._meets_at)
            self._say("all", self._meets_at)
        if not self._is_met and time.monotonic() > self._until and not stopping:
            self.miss()
        self._have_begun = self._is_met
        others = [
            self._arrivals.get(node, 0)
            for node in range(1, self._place.count)
            if node in self._hellos and node not in self._ends
        ]
        if (least := min([self._arrived, *others])) != self._least:
            self._least = least
            self._say("least", least)

    def may_begin(self) -> bool:
        """Whether enough nodes have come."""
        return len(self._hellos) == self._place.count

    def miss(self) -> NoReturn:
        """Raise the error for nodes that have not come in time."""
        missing = sorted({node // self._place.tasks for node in range(self._place.count) if node not in self._hellos})
        raise self._missing(f"node {' and '.join(map(str, missing))} has not joined", f"to {self._place.where}")

    def receive(self) -> None:
        """Handle the others' messages. Raises what ends the run here because of them."""
        for machine, text in self._mailbox.news():
            self._hear(machine, *json.loads(text))
        self._raise_cause()

    def _hear(self, machine: int, kind: str, value: Any) -> None:
        if kind == "config":
            self._configs.setdefault(machine, {}).update(value)
        elif kind == "came":
            self._meet(machine, NodeHello(*value)._replace(config=self._configs.pop(machine, {})))
        elif kind == "arrived":
            self._arrivals[machine] = int(value)
        elif kind == "stop" and not self._is_stopping:
            self._is_stopping = True
            os.kill(os.getpid(), signal.SIGTERM)
        elif kind == "end":
            self._note(machine, NodeEnd(ExitReason(value[0]), str(value[1]), int(value[2])))
        elif kind == "silent":
            self._note(machine, NodeEnd(ExitReason.SILENT, _silence(value)))

    def _meet(self, machine: int, other: NodeHello) -> None:
        self._hellos[machine] = other
        self._ends.pop(machine, None)
        try:
            refuse_unlike(self._me, other, self.name(0), self.name(machine))
        except ConfigError as why:
            self.refuse(machine, why)
        else:
            self._say("met", [machine, other.pid, other.host])

    def refuse(self, machine: int, why: ConfigError) -> None:
        """Handle a node that was not started alike: it ends the run."""
        raise why

    def _note(self, machine: int, end: NodeEnd) -> None:
        """One that is silent and has said before how it ended, or has not come, is not missed."""
        if machine not in self._hellos or (end.reason is ExitReason.SILENT and machine in self._ends):
            return
        self._ends[machine] = end
        if end.reason not in self._ends_all and end.reason is not ExitReason.DONE:
            self.on_node_end(machine, end)

    def on_node_end(self, machine: int, end: NodeEnd) -> None:
        """Handle the end of a node without which the others go on."""

    @override
    def _ends_it(self, machine: int, reason: ExitReason) -> bool:
        return reason in self._ends_all

    @override
    def announce_end(self) -> None:
        self._tell(0, NodeEnd(ExitReason.DONE))

    @override
    def explained(self, error: BaseException) -> BaseException:
        """Tell the others the error, which ends them too."""
        if isinstance(error, ConfigError):
            self._has_told = True
            self.tell_refusal(error, None)
            return error
        ended, until = end_of(error), time.monotonic() + CAUSE_S
        while ended.reason is ExitReason.ECHO and time.monotonic() < until:
            try:
                self.receive()
            except BaseException as cause:  # noqa: BLE001  # whatever it is, it is returned
                return self.explained(cause)
            if len(self._ends) == self._place.count - 1:
                break  # all have told
            time.sleep(served_run.PULSE_S / 5)
        elsewhere = self._cause() if error is self._raised else None
        self._tell(*(elsewhere or (0, ended)))
        return error

    def _tell(self, machine: int, end: NodeEnd) -> None:
        if not self._has_told:
            self._has_told = True
            self._say("end", [machine, end])

    def tell_refusal(self, why: ConfigError, machine: int | None) -> None:
        """Send the refusal to all nodes, or to this node alone."""
        whom = None if machine is None else [machine, self._hellos[machine].pid]
        problem = why.problem
        self._say("refused", [[problem.key, problem.message, problem.fix, problem.code], whom])

    def _say(self, kind: str, value: Any) -> None:
        self._mailbox.post(json.dumps([kind, value]))

    @override
    def stop_monitoring(self) -> None:
        self.announce_end()
        self._mailbox.release_port()
        self._keeper.terminate(served_run.LEAVE_S + 2)
        self._mailbox.close()


class OtherMonitor(NodeMonitor):
    """The monitor of any other node."""

    def __init__(
        self,
        place: NodeRank,
        mailbox: served_run.RemoteMailbox,
        me: NodeHello,
        deadline_s: float,
        ends_all: Collection[ExitReason] = EVERY_END,
    ) -> None:
        super().__init__(place, mailbox.met, me, deadline_s, ends_all)
        self._mailbox = mailbox
        self._says: list[str] = list(_in_messages(me.config))
        self._says.append(json.dumps(["came", me._replace(config={})]))
        self._refused: ConfigError | None = None
        self._has_stopped = False

    @override
    def start_monitoring(self) -> None:
        super().start_monitoring()
        self.exchange()

    @override
    def send_heartbeat(self) -> None:
        if not self._has_told:
            self.exchange()

    @override
    def arrived(self, meetings: int) -> bool:
        if meetings != self._arrived:
            self._says.append(json.dumps(["arrived", meetings]))
        return super().arrived(meetings)

    @override
    def check(self, stopping: bool) -> None:
        if stopping and ExitReason.STOPPED in self._ends_all and not self._has_stopped:
            self._has_stopped = True
            self._says.append(json.dumps(["stop", None]))
        self.exchange()
        if self._refused is not None:
            raise self._refused
        self._raise_cause()
        if not self._is_met and time.monotonic() > self._until:
            raise self._missing("node 0 has not joined", self._mailbox.unfound)
        if self._is_met and ExitReason.SILENT in self._ends_all and self._is_cut_off():
            self._raised = self._cut_off()
            raise self._raised

    def _cut_off(self) -> NodeLost:
        where = f"{self.name(0)} has not answered at {self._place.where} for {served_run.DEAD_S:g} s"
        return NodeLost(f"{where}: {self._mailbox.unfound}")

    def _is_cut_off(self) -> bool:
        """Whether the first machine, which has not ended, cannot be reached."""
        return 0 not in self._ends and self._mailbox.is_unreachable()

    def exchange(self) -> None:
        """Exchange messages with the first node, if it can be reached. This also shows that this monitor lives."""
        try:
            if not self._mailbox.find(FIND_S):
                return
            self._say_all()
            for text in self._mailbox.news():
                self._hear(*json.loads(text))
        except served_run.ChannelLost:
            pass  # it is looked for again, and is unreachable after a while
        except served_run.Refused as refused:
            if not self._is_met:
                raise ConfigError(node_rank.NODES, f"cannot begin: {refused}", ALIKE) from refused

    def _say_all(self) -> None:
        while self._says:
            self._mailbox.post(self._says[0])
            self._says.pop(0)

    def _hear(self, kind: str, value: Any) -> None:
        if kind == "here":
            self._hellos[0] = NodeHello(*value)
        elif kind == "met":
            machine, pid, host = value
            self._hellos.setdefault(machine, self._me._replace(host=host))
            if (machine, pid) == (self._place.index, self._me.pid) and not self._is_met:
                self._is_met = True
                self.on_accepted()
        elif kind == "all":
            self._have_begun = True
            self._met.set(int(value))
        elif kind == "least":
            self._least = int(value)
        elif kind == "refused":
            problem, whom = value
            if whom in (None, [self._place.index, self._me.pid]):
                self._refused = ConfigError(*map(str, problem))
        elif kind == "silent":
            self._ends.setdefault(0, NodeEnd(ExitReason.SILENT, _silence(value)))
        elif kind == "end":
            machine, (reason, cause, worker) = value
            if machine == self._place.index:
                machine, reason, cause = 0, "silent", f"ended the run, because this machine {cause}"
            self._ends[machine] = NodeEnd(ExitReason(reason), str(cause), int(worker))
            if machine:
                self._ends[0] = NodeEnd(ExitReason.ECHO)

    def on_accepted(self) -> None:
        """Called when the first node's monitor has found that this one was started alike."""

    def is_echo(self, error: BaseException) -> bool:
        """Whether the error only says that another process is gone."""
        return end_of(error).reason is ExitReason.ECHO

    def unexplained(self, error: BaseException) -> BaseException:
        """The error to end with instead of an echo, if no node sends the reason."""
        return self._cut_off() if self._is_cut_off() else error

    @override
    def announce_end(self) -> None:
        self._tell(NodeEnd(ExitReason.DONE))

    @override
    def explained(self, error: BaseException) -> BaseException:
        """Tell the first node the error. Returns the error to end with: another node's end, if that is the cause."""
        if error in (self._raised, self._refused):
            self._has_told = True
            return error
        ended, is_echo = end_of(error), self.is_echo(error)
        if ended.reason is ExitReason.ECHO:
            self._tell(ended)
        until = time.monotonic() + CAUSE_S + 2 * served_run.PULSE_S
        while is_echo and not (self._ends or self._refused or self._is_cut_off()) and time.monotonic() < until:
            self.exchange()
            time.sleep(served_run.PULSE_S / 5)
        if is_echo and self._refused is not None:
            return self._refused
        if is_echo and (cause := self._cause()) is not None:
            return self.ended(*cause)
        self._tell(ended)
        return self.unexplained(error) if is_echo else error

    def _tell(self, end: NodeEnd) -> None:
        if not self._has_told:
            self._has_told = True
            self._says.append(json.dumps(["end", end]))
            self.exchange()

    @override
    def stop_monitoring(self) -> None:
        self.announce_end()
        self._mailbox.close()


def _silence(seconds: float) -> str:
    return f"has been silent for {seconds:g} s"


def _in_messages(config: Mapping[str, str]) -> Iterator[str]:
    """A config's digests by key, in as many texts as they need."""
    items = [(key[:KEY_CHARACTERS], digest) for key, digest in config.items()]
    for start in range(0, len(items), KEYS):
        yield json.dumps(["config", dict(items[start : start + KEYS])])
