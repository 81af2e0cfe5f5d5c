import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

from scalebook.training.base.processes import (
    Children,
    ProcessId,
    die_with_parent,
    reap,
)
from tests.training.benches import wait_for

SLEEP = "import time; time.sleep(60)"
FAMILY = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {SLEEP!r}]); time.sleep(60)"


def test_a_process_is_told_from_a_later_one_with_its_pid() -> None:
    me = ProcessId.of()
    assert me.alive()
    assert not replace(me, start=me.start - 1).alive()
    assert not replace(me, start=me.start - 1).send(signal.SIGKILL)


def test_a_zombie_is_not_alive() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    found = ProcessId.of(process.pid)
    wait_for(lambda: not found.alive(), "its end")
    assert os.path.exists(f"/proc/{process.pid}")
    process.wait()
    assert not found.alive()


def test_a_session_is_known_by_its_leader_also_after_the_leaders_death() -> None:
    process = subprocess.Popen([sys.executable, "-c", FAMILY], start_new_session=True)
    leader = ProcessId.of(process.pid)
    wait_for(lambda: len(leader.session()) == 2, "the child")
    (child,) = leader.descendants()
    assert leader.send(signal.SIGKILL)
    process.wait()
    assert leader.descendants() == []
    assert leader.session() == [child]
    assert replace(leader, boot="another").session() == []  # from before the machine's start
    assert child.send(signal.SIGKILL)
    wait_for(lambda: leader.session() == [], "the child's end")


def test_the_end_of_a_child_is_kept_for_whoever_started_it() -> None:
    children, pid = Children(), os.fork()
    if pid == 0:
        os._exit(4)
    wait_for(lambda: not ProcessId.of(pid).alive(), "its end")
    assert children.pop_exit_code(pid) is None  # nobody has looked
    children.reap()
    children.reap()
    assert (children.pop_exit_code(pid), children.pop_exit_code(pid)) == (4, None)


def test_reap_tells_codes_and_signals() -> None:
    pids = []
    for code in (0, 3, -signal.SIGKILL):
        pid = os.fork()
        if pid == 0:
            if code < 0:
                os.kill(os.getpid(), -code)
            os._exit(code)
        pids.append(pid)
    found: dict[int, int] = {}
    wait_for(lambda: found.update(reap()) or len(found) == 3, "three ends")
    assert [found[pid] for pid in pids] == [0, 3, -9]


def test_a_process_dies_with_its_parent() -> None:
    read, write = os.pipe()
    parent = os.fork()
    if parent == 0:
        me = os.getpid()
        child = os.fork()
        if child == 0:
            die_with_parent(me)
            os.write(write, f"{os.getpid()}\n".encode())
            time.sleep(60)
            os._exit(0)
        time.sleep(60)
        os._exit(0)
    child_id = ProcessId.of(int(os.read(read, 20)))
    assert child_id.alive()
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    wait_for(lambda: not child_id.alive(), "the child's end", deadline_s=5)


def test_a_process_whose_parent_is_gone_already_ends_at_once() -> None:
    pid = os.fork()
    if pid == 0:
        try:
            die_with_parent(1 << 30)
        except SystemExit:
            os._exit(42)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42
