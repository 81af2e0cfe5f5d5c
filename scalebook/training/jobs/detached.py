"""A process of ours that outlives whoever starts it."""

import subprocess
import threading
from typing import IO

from scalebook.training.safe_path import HOME, environment, python


def start(log: IO[bytes], module: str, *arguments: str) -> "subprocess.Popen[bytes]":
    """`python -m MODULE ARGUMENTS` in a session of its own; what it prints goes to `log`."""
    process = subprocess.Popen(
        python("-m", module, *arguments),
        cwd=HOME,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    # whoever started it must wait for it when it ends, or it would stay a zombie
    threading.Thread(target=process.wait, name=f"wait-for-{module.rpartition('.')[2]}", daemon=True).start()
    return process
