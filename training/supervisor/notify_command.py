"""`python -m scalebook.training.supervisor.notify_command FOLDER ENDINGS`: run the command, post to the webhook.

It follows `[notify]` in the folder's `scalebook.toml`, if the folder is trusted. Failures go to standard output, which
is the supervisor's log.
"""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict
from http.client import HTTPException
from pathlib import Path
from typing import Final

from scalebook.training.base.files import records
from scalebook.training.base.trust import trusted
from scalebook.training.base.workspace import NotifySettings, Workspace
from scalebook.training.jobs.ended_jobs import Ending

COMMAND_DEADLINE_S: Final = 30.0
WEBHOOK_DEADLINE_S: Final = 10.0


def main(argv: Sequence[str]) -> int:
    """Notify of all endings; returns 0 if all succeeded."""
    workspace, endings = Workspace(Path(argv[0])), records.parse(Path("argument"), argv[1].encode(), list[Ending])
    if not trusted(workspace):
        print("scalebook: no notification: the folder is not trusted (--trust, or the button on the pages)")
        return 1
    problems = [problem for ending in endings for problem in notify(workspace.settings.notify, ending, workspace.root)]
    for problem in problems:
        print(f"scalebook: {problem}", flush=True)
    return 1 if problems else 0


def notify(settings: NotifySettings, ending: Ending, folder: Path) -> list[str]:
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
    return f"ended with code {process.returncode}: {process.stderr.strip()[-300:]}" if process.returncode else ""


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
