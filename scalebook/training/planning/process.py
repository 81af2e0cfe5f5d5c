"""The process of one question that was asked in the browser: `python -m scalebook.training.planning.process FOLDER`."""

import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from scalebook.training.config.catalogue import describe
from scalebook.training.errors import ConfigError
from scalebook.training.jobs.interrupting import sigterm_interrupts
from scalebook.training.planning.answering import answer
from scalebook.training.planning.asked import Asked
from scalebook.training.planning.profile import Profile

DEADLINE_S: Final = 900
EVERY_S: Final = 0.2
"""Between two words on how far it is."""


def main(argv: Sequence[str]) -> int:
    """Exit code: 0 answered, 2 a mistake in what was asked, 1 a failure (both are said in the folder), 130 stopped."""
    asked = Asked.at(Path(argv[0]))
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(DEADLINE_S)
    try:
        with sigterm_interrupts():
            _work(asked)
    except KeyboardInterrupt:
        return 130
    except ConfigError as error:
        asked.fail(error)
        return 2
    except Exception as error:  # noqa: BLE001 - who waits for an answer is told, with the log
        asked.fail(ConfigError("plan", f"failed: {error or type(error).__name__}", f"See {asked.folder / 'log.txt'}."))
        traceback.print_exc()
        return 1
    return 0


def _work(asked: Asked) -> None:
    profile = asked.profile()
    if profile is None:
        profile = _measure(asked)
        asked.keep_profile(profile)
    asked.keep_answer(profile, answer(profile, asked.request.question(), _Seldom(asked)))


def _measure(asked: Asked) -> Profile:
    """Of the config, in a short run of its own. ConfigError where it cannot run, or has failed."""
    from scalebook.training.planning.measuring import NotMeasured, measure  # Lightning, which playing does without

    asked.tell(0, 0, "measuring: a few seconds of training, as soon as a core is free")
    workspace = asked.workspace
    try:
        return measure(workspace, asked.config(), describe(workspace), sys.stdout)
    except NotMeasured as error:
        raise ConfigError("plan", str(error).partition(". ")[0], str(error).partition(". ")[2]) from error


class _Seldom:
    """Tells how far it is, at most every EVERY_S."""

    def __init__(self, asked: Asked) -> None:
        self._asked, self._next = asked, 0.0

    def __call__(self, done: int, whole: int, words: str) -> None:
        if (now := time.monotonic()) >= self._next:
            self._asked.tell(done, whole, words)
            self._next = now + EVERY_S


def _too_long(number: int, frame: FrameType | None) -> None:
    raise ConfigError("plan", f"took more than {DEADLINE_S} s", "Ask for fewer workers, rules, shards or links.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
