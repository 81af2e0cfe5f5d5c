"""Tells people that something has ended: in a file that the app reads, and by a separate process as `[notify]` says.

`python -m scalebook.training.supervisor.notifier FOLDER ENDINGS` is that process: it runs the command and posts to the
webhook of `[notify]` in the folder's `scalebook.toml`, if the folder is trusted. Failures go to standard output, which
is the supervisor's log.
"""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict
from http.client import HTTPException
from pathlib import Path
from signal import SIGKILL
from typing import Final

from scalebook.training.base import Children, ConfigError, NotifySettings, ProcessId, Workspace, processes, trust
from scalebook.training.base.files import records
from scalebook.training.jobs import JobFolder, end_notices
from scalebook.training.search import SearchFolder

DEADLINE_S = 120.0
MOST = 100
"""The most endings that wait for notification; beyond that the oldest are dropped."""


class Notifier:
    """Give it what has ended, and call `poll`: one process at a time notifies of all endings that have come
    meanwhile."""

    def __init__(self, workspace: Workspace, children: Children) -> None:
        self.workspace, self.children = workspace, children
        self._waiting: list[end_notices.Ending] = []
        self._helper: ProcessId | None = None
        self._since = 0.0

    @property
    def busy(self) -> bool:
        return bool(self._waiting) or self._helper is not None

    def job_ended(self, job: JobFolder) -> None:
        ending = end_notices.of_job(job)
        if ending is not None:
            self._take(ending)

    def search_ended(self, search: SearchFolder) -> None:
        result = search.result()
        if result is not None:
            request = search.request()
            seconds = max(0.0, result.ended - request.created)
            self._take(
                end_notices.Ending(
                    "search", search.id, request.name, result.status, result.ended, seconds, None, result.cause,
                    result.failed,
                )
            )  # fmt: skip

    def _take(self, ending: end_notices.Ending) -> None:
        self._waiting = [*self._waiting, ending][-MOST:]
        end_notices.add(self.workspace, ending)

    def poll(self) -> None:
        if self._helper is not None:
            code = self.children.pop_exit_code(self._helper.pid)
            if code is not None:
                self._helper = None
            elif time.monotonic() - self._since > DEADLINE_S:
                self._helper.send(SIGKILL)
            return
        if not self._waiting:
            return
        end_notices, self._waiting = self._waiting, []
        try:
            settings = Workspace(self.workspace.root).settings.notify  # as the file says now
        except ConfigError as error:
            print(f"scalebook: no notification: {error}", flush=True)
            return
        if settings:
            facts = json.dumps([asdict(ending) for ending in end_notices])
            self._helper = processes.start("scalebook.training.supervisor.notifier", str(self.workspace.root), facts)
            self._since = time.monotonic()


COMMAND_DEADLINE_S: Final = 30.0
WEBHOOK_DEADLINE_S: Final = 10.0


def main(argv: Sequence[str]) -> int:
    """Notify of all endings; returns 0 if all succeeded."""
    workspace, endings = (
        Workspace(Path(argv[0])),
        records.parse(Path("argument"), argv[1].encode(), list[end_notices.Ending]),
    )
    if not trust.trusted(workspace):
        print(
            "scalebook: no notification was sent, because the folder is not trusted (use --trust, or the button in "
            "the app)"
        )
        return 1
    problems = [problem for ending in endings for problem in notify(workspace.settings.notify, ending, workspace.root)]
    for problem in problems:
        print(f"scalebook: {problem}", flush=True)
    return 1 if problems else 0


def notify(settings: NotifySettings, ending: end_notices.Ending, folder: Path) -> list[str]:
    """Notify of one ending; returns what failed, in words."""
    content = json.dumps({**asdict(ending), "text": ending.text})
    problems = []
    if settings.command:
        problem = _command([*settings.command, ending.text], content, folder)
        problems += [f"notify.command {settings.command[0]}: {problem}"] if problem else []
    if settings.webhook:
        problem = _post(settings.webhook, content)
        problems += [f"notify.webhook: {problem}"] if problem else []
    return problems


def _command(words: Sequence[str], content: str, folder: Path) -> str:
    try:
        process = subprocess.run(words, input=content, capture_output=True, text=True, errors="replace", cwd=folder,
                              timeout=COMMAND_DEADLINE_S, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"did not end within {COMMAND_DEADLINE_S:g} s"
    except OSError as error:
        return f"cannot be run ({error.strerror})"
    return f"exited with code {process.returncode}: {process.stderr.strip()[-300:]}" if process.returncode else ""


def _post(url: str, content: str) -> str:
    """The address may hold a secret, so it is not repeated."""
    request = urllib.request.Request(url, content.encode(), {"Content-Type": "application/json"}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=WEBHOOK_DEADLINE_S):
            return ""
    except (OSError, HTTPException, ValueError) as error:
        return f"{type(error).__name__}: {error}"[:300]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
