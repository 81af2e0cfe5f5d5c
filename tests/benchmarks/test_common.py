import os
import subprocess
import sys
import time

from benchmarks.common import Others

SPIN = "import time\nuntil = time.monotonic() + 0.5\nwhile time.monotonic() < until: pass"


def test_an_ended_child_is_ours_and_a_running_one_is_not() -> None:
    others = Others()
    subprocess.run([sys.executable, "-c", SPIN], check=True)
    ours = others.share()
    others = Others()
    with subprocess.Popen([sys.executable, "-c", SPIN.replace("0.5", "30")]) as child:
        try:
            time.sleep(1.0)
            theirs = others.share()
        finally:
            child.kill()
    assert 0 <= ours <= 1
    assert theirs > 0.2 / (os.cpu_count() or 1)  # a second of spinning, less starting and what the machine is short of


def test_the_sentence_names_the_machine_and_the_share() -> None:
    assert f"{os.cpu_count()} cores" in Others().sentence()
    assert "of the machine." in Others().sentence()
