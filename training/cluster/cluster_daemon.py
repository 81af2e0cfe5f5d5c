"""The cluster daemon (`python -m scalebook.training.cluster.cluster_daemon FOLDER`): connects one workspace to the
nodes.

There is one process per workspace, the only one here that imports Ray. It finds the nodes, keeps an agent on each,
passes requests on (`cluster_spool.py`) and fetches what jobs write (`node_connection.py`). It stays while a process
wants it or a job runs on a node, and ends the agents when it leaves. If it is killed, the next one goes on where it
was.
"""

import argparse
import hashlib
import os
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from scalebook.training.base import OWNER_ONLY, ConfigError, ProcessId, Workspace
from scalebook.training.base.files import forgive, locks
from scalebook.training.cluster.agent import Agent
from scalebook.training.cluster.cluster_spool import ClusterSpool, KnownNodes, RemoteState, state_of
from scalebook.training.cluster.mlflow_relay import MlflowRelay
from scalebook.training.cluster.node_connection import (
    CALL_S,
    LISTEN_S,
    SILENT_S,
    TURN_S,
    AgentLink,
    give_up,
    record_failed_start,
)
from scalebook.training.cluster.outgoing_files import package_hash
from scalebook.training.cluster.ray_daemons import connected
from scalebook.training.cluster.rendezvous import Gathering, Rendezvous
from scalebook.training.jobs import JobFolder, NodeDevices, begin_request

LOOK_S: Final = 1.0
"""Interval between checks which nodes there are, s."""
NO_ANSWER: Final = "does not answer"
RETRY_S: Final = 5.0
LOST_S: Final = 120.0
"""After so long without a node that knows a job, the job is given up, s. Ray ends everything on a node without a head
after 60 s."""
LEAVE_S: Final = 30.0


class NodeWorker:
    """The connection to one node, in a thread of its own: it creates the agent, waits until that is ready, and serves
    it."""

    def __init__(self, daemon: "ClusterDaemon", node: dict[str, Any], name: str) -> None:
        self.daemon, self.node_id, self.name = daemon, str(node["NodeID"]), name
        self.address = str(node["NodeManagerAddress"])
        self.cores = int(node["Resources"].get("CPU", 0)) or None
        self.words = "is being queried"
        self.machine: NodeDevices | None = None
        self.link: AgentLink | None = None
        self.over = False
        self.leaving = False
        self._actor: Any = None
        self._asked: Any = None
        self._looked = -LOOK_S
        self._asked_at = 0.0
        self.thread = threading.Thread(target=self._run, name=f"machine {name}", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        exceptions = self.daemon.ray.exceptions
        while not self.over:
            try:
                self._turn()
            except exceptions.ActorUnavailableError:
                self._away(NO_ANSWER)
            except exceptions.GetTimeoutError:
                self._away(NO_ANSWER)
            except exceptions.RayActorError as error:
                self._lost(str(error))
            except OSError as error:
                self._away(str(error))
            except Exception as error:  # noqa: BLE001 - one node must not keep the cluster daemon from the others
                traceback.print_exc()
                self._away(f"{type(error).__name__}: {str(error)[:200]}")

    def _away(self, words: str) -> None:
        self.words, self._asked = words, None
        if self.link is not None and words == NO_ANSWER:
            self.link.give_back()
        time.sleep(LOOK_S)

    def _lost(self, words: str) -> None:
        print(f"scalebook: {self.name} is lost: {words}", flush=True)
        self.words, self.over = "is lost", True
        if self.link is not None:
            self.link.lost(f"lost with {self.name}")

    def _turn(self) -> None:
        if self._actor is None:
            self._actor = self.daemon.agent(self.node_id, self.name, self.cores)
        if self.link is None or self.machine is None:
            self._meet()
            return
        link, ray = self.link, self.daemon.ray
        for order in self.daemon.spool.ordered():
            if order.machine == self.name:
                link.send(order)
        link.pass_on()
        if self._asked is None:
            self._asked_at = time.monotonic()
            self._asked = self._actor.news.remote(*link.question(), 0.0 if self.leaving else LISTEN_S)
        ready, _ = ray.wait([self._asked], timeout=TURN_S)
        if ready:
            answer, self._asked = self._asked, None
            link.receive_answer(*ray.get(answer))
            self.words = ""
        elif time.monotonic() - self._asked_at > SILENT_S:
            self.words = NO_ANSWER
            link.give_back()
        link.finish_all_ended()
        self._look_for_data(self.machine)
        if self.leaving and link.clear_ended():
            self.over = True

    def _look_for_data(self, machine: NodeDevices) -> None:
        """Find which of the paths that jobs name and that are not copied exist on the node."""
        if time.monotonic() - self._looked < LOOK_S:
            return
        self._looked = time.monotonic()
        needed = self.daemon.spool.needed()
        self.machine = replace(machine, has=self.call("has", needed) if needed else [])

    def _meet(self) -> None:
        hello = self.call("hello")
        if hello["package"] != package_hash():
            self.words = "has a different version of Scalebook"
            time.sleep(RETRY_S)
        elif hello["state"] != "ready":
            self.words = hello["problem"] or "is loading the modules that runs need (about 6 s, once)"
            time.sleep(0.1)
        self.link = self.link or AgentLink(
            self.daemon.spool, self.name, hello["start_id"], self.call, self.daemon.recording,
            self.daemon.gathering,
        )  # fmt: skip
        if hello["package"] == package_hash() and hello["state"] == "ready":
            self.machine, self.words = hello["machine"], ""

    def call(self, method: str, *arguments: Any) -> Any:
        within_s = CALL_S if method == "put" else SILENT_S
        return self.daemon.ray.get(getattr(self._actor, method).remote(*arguments), timeout=within_s)

    def stop_agent(self) -> None:
        """End the node's agent when no job is left."""
        if self._actor is not None and self.words != "is lost":
            try:
                self.call("close")
                self.daemon.ray.kill(self._actor)
            except Exception as error:  # noqa: BLE001 - it is gone, or goes with its machine
                print(f"scalebook: the agent on {self.name}: {error}", flush=True)


class ClusterDaemon:
    """The cluster daemon of one workspace."""

    def __init__(self, workspace: Workspace, runner: str | None, preload: Sequence[str] | None) -> None:
        self.workspace, self.runner, self.preload = workspace, runner, preload
        self.spool = ClusterSpool(workspace).create()
        self.recording, self.gathering = MlflowRelay(), Gathering(self.rendezvous_of)
        self.ray: Any = None
        self.places: dict[str, NodeWorker] = {}
        self._me = ProcessId.of()
        self._said: KnownNodes | None = None
        self._orphans: dict[str, float] = {}
        self._looked = 0.0

    def serve(self) -> None:
        """Serve until nobody wants it, and no job runs on a node."""
        problem = ""
        while self.ray is None:
            try:
                self.ray = connected(self.workspace)
            except Exception as error:  # noqa: BLE001 - whatever Ray says, it is told, and tried again
                problem = str(error.problem) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
                print(f"scalebook: {problem}", flush=True)
                self.note(problem[:300])
                self._give_up_orphans()
                time.sleep(RETRY_S)
            if self.ray is None and not self.spool.wanted():
                return
        last = time.monotonic()
        while True:
            self._look()
            self.note("")
            if self.spool.wanted() or self._any_alive():
                last = time.monotonic()
            elif time.monotonic() - last > 1.0:
                break
            time.sleep(0.1)
        self._leave()

    def agent(self, node: str, name: str, cores: int | None) -> Any:
        """The agent's actor on this node; created if there is none."""
        key = f"{hashlib.sha256(str(self.workspace.root).encode()).hexdigest()[:16]}-{node[:12]}"
        near = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        actor = self.ray.remote(Agent).options(
            name=f"agent-{key}", lifetime="detached", get_if_exists=True, num_cpus=0, max_concurrency=8,
            max_restarts=0, scheduling_strategy=near,
        )  # fmt: skip
        return actor.remote(key, name, cores, self.runner, self.preload)

    def rendezvous_of(self, run: str, first: str) -> Rendezvous | None:
        """Where the nodes of a run meet; None while its first node does not answer. May be called from any thread."""
        place = next((place for place in list(self.places.values()) if place.name == first and place.link), None)
        if place is None:
            return None
        try:
            rendezvous: Rendezvous = place.call("rendezvous_of", run, place.address)
        except self.ray.exceptions.RayError as error:
            print(f"scalebook: {first} did not report the address of run {run}: {error}", flush=True)
            return None
        return rendezvous

    def note(self, problem: str) -> None:
        ready = [place.machine for place in self.places.values() if place.machine is not None and not place.words]
        others = {place.name: place.words for place in self.places.values() if place.words}
        machines = KnownNodes(self._me, sorted(ready, key=lambda machine: machine.name), others, problem)
        if machines != self._said:
            self.spool.note(machines)
            self._said = machines

    def _look(self) -> None:
        if time.monotonic() - self._looked < LOOK_S:
            return
        self._looked = time.monotonic()
        nodes = {str(node["NodeID"]): node for node in self.ray.nodes() if node["Alive"]}
        for node_id, place in list(self.places.items()):
            if node_id not in nodes and place.link is None:
                place.over = True  # never met, and gone: an agent there would be waited for in vain
            if (place.over and node_id not in nodes) or (place.over and not place.leaving):
                del self.places[node_id]
        for node_id, node in nodes.items():
            if node_id not in self.places:
                self.places[node_id] = NodeWorker(self, node, self._name(node))
        self._adopt()
        self._refuse({place.name for node_id, place in self.places.items() if node_id in nodes})

    def _refuse(self, present: set[str]) -> None:
        """Give up orders for nodes that are not `present`, and withdrawn parts that no node knows."""
        orders = self.spool.ordered()
        for order in orders:
            if order.machine not in present:
                print(f"scalebook: {order.job} cannot start: node {order.machine} is not available", flush=True)
                record_failed_start(self.spool, order.job, order.parts)
        jobs = {order.job for order in orders}
        jobs |= {name for place in self.places.values() if place.link is not None for name in list(place.link.jobs)}
        for name, action in self.spool.pending_requests():
            if action == "withdraw" and name not in jobs:
                record_failed_start(self.spool, name)
                self.spool.passed_on(name, action)

    def _name(self, node: dict[str, Any]) -> str:
        name = str(node.get("NodeName") or node["NodeManagerHostname"])
        taken = {place.name for place in self.places.values()}
        return f"{name}-{str(node['NodeID'])[:6]}" if name in taken else name

    def _adopt(self) -> None:
        """Give jobs of an earlier daemon to their nodes; jobs on nodes that are gone are given up."""
        links = {place.link.agent: place.link for place in self.places.values() if place.link is not None}
        watched = {name for link in links.values() for name in link.jobs}
        for folder, state in self._open():
            assert state.handle is not None
            if folder.id in watched:
                continue
            if (link := links.get(state.handle.agent)) is not None:
                link.adopt(folder, state)
            else:
                self._orphan(folder, state, all(place.link for place in self.places.values()))

    def _orphan(self, folder: JobFolder, state: RemoteState, sure: bool) -> None:
        """Give up a job that no node knows. `sure`: all nodes have been asked."""
        assert state.handle is not None
        since = self._orphans.setdefault(folder.id, time.monotonic())
        if time.monotonic() - since > (5 * LOOK_S if sure else LOST_S):
            print(f"scalebook: job {folder.id} was given up, because no agent knows it", flush=True)
            give_up(folder, state, f"lost with {state.handle.machine}")

    def _give_up_orphans(self) -> None:
        for folder, state in self._open():
            self._orphan(folder, state, sure=False)

    def _open(self) -> list[tuple[JobFolder, RemoteState]]:
        """Jobs on other nodes of which something is left."""
        open_jobs = []
        hidden = self.workspace.hidden
        for path in (*hidden.glob("jobs/[!.]*/remote.json"), *hidden.glob(f"{begin_request.PARTS}/*/remote.json")):
            state = state_of(path.parent)
            if state is not None and state.handle is not None and not state.cleared:
                open_jobs.append((JobFolder(path.parent), state))
        return open_jobs

    def _any_alive(self) -> bool:
        return any(state.alive for _, state in self._open())

    def _leave(self) -> None:
        for place in self.places.values():
            place.leaving = True
        deadline = time.monotonic() + LEAVE_S
        for place in self.places.values():
            place.thread.join(max(0.1, deadline - time.monotonic()))
            place.over = True
            place.stop_agent()
        self.recording.close()
        self.ray.shutdown()


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scalebook.training.cluster.cluster_daemon")
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--runner", default=None)
    parser.add_argument(
        "--preload", default=None, help="modules that the agents' fork servers import, separated by commas"
    )
    options: Any = parser.parse_args(argv)
    os.umask(OWNER_ONLY)
    forgive()
    workspace = Workspace(options.workspace)
    preload = None if options.preload is None else tuple(filter(None, options.preload.split(",")))
    with locks.only_one(ClusterSpool(workspace).create().lock) as alone:
        if alone:
            ClusterDaemon(workspace, options.runner, preload).serve()
    return 0


if __name__ == "__main__":
    import sys

    sys.exit(main(sys.argv[1:]))
