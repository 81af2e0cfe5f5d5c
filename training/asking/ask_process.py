"""The process for a question of the browser: `python -m scalebook.training.asking.ask_process NOTEBOOK ANSWER`."""

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from scalebook.training.asking.ask_folder import AskFolder
from scalebook.training.asking.asking import Asking, NoAnswer
from scalebook.training.base import ConfigError, Problem, Workspace, processes
from scalebook.training.experiments import catalogue


def main(argv: Sequence[str]) -> int:
    """Exit code: 0 answered or budget spent, 2 a mistake, 1 a failure (both are written to the folder), 130 stopped."""
    notebook, answer = Path(argv[0]), argv[1]
    workspace = Workspace(notebook.resolve().parent)
    folder = AskFolder.of(workspace, notebook.name, answer)
    try:
        with processes.sigterm_interrupts():
            Asking(notebook, answer, catalogue.describe(workspace), lambda words: print(words, flush=True)).run()
    except KeyboardInterrupt:
        return 130
    except ConfigError as error:
        folder.fail(error.problem)
        return 2
    except NoAnswer as error:
        folder.fail(Problem("failed-run", "answer", error.message, error.fix))
        return 1
    except Exception as error:  # noqa: BLE001 - who waits for the answer is told, with the log
        what = f"failed: {error or type(error).__name__}"
        folder.fail(Problem("failed", "answer", what, f"See {folder.log}."))
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
