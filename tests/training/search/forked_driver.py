"""`python -m tests.training.search.forked_driver FOLDER`: a driver in 0.1 s, forked by `warm_drivers`.

The supervisor notes this process as the driver; the driver notes itself, after that. It ends when the driver has.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path

SOCKET = "SCALEBOOK_TEST_DRIVERS"
"""The variable with the name of the abstract socket on which the process listens that forks."""
DEADLINE_S = 60.0


def main(search: Path) -> int:
    until = time.monotonic() + DEADLINE_S
    while _noted(search) != os.getpid() and time.monotonic() < until:
        time.sleep(0.005)
    mask = os.umask(0)
    told = {"search": str(search), "folder": os.getcwd(), "umask": mask, "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(f"\0{os.environ[SOCKET]}")
        socket.send_fds(connection, [json.dumps(told).encode()], [1, 2])
        code = int(connection.recv(64) or b"1")
    return code if code >= 0 else 128 - code


def _noted(search: Path) -> int:
    """Pid of the driver that the search's folder names; 0 where it names none."""
    try:
        pid: int = json.loads((search / "driver.json").read_text(encoding="utf-8"))["process"]["pid"]
    except FileNotFoundError:
        return 0
    return pid


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
