"""`scalebook COMMAND`: imports the command's module and calls it."""

import importlib
import os
import select
import sys
from typing import Final

from scalebook import __version__
from scalebook.training.base import OWNER_ONLY, ConfigError, require_linux, safe_path
from scalebook.training.base.files import refusals_told, terminal

USAGE: Final = """usage: scalebook COMMAND ...

  ui [FOLDER]                            open a folder of notebooks in the browser
  ask QUESTION FILE.md --cell NAME       answer a question about an experiment: will more workers help, ...
  fit -c X.yaml [--KEY VALUE ...]        run one experiment in the foreground and record it
  validate|test|predict -c X.yaml        evaluate a checkpoint (--ckpt_path FILE, or --run ID)
  notebook run|check FILE.md             run the experiments of a notebook, or only validate its cells
  notebook export|verify|tables FILE     export a notebook, judge an archive again, write results into its text
  notebook examples FOLDER               copy the notebooks that ship with Scalebook into a folder
  search run|check FILE.md --cell NAME   run a search over hundreds of configs, or only validate it
  search list|show|resume|stop           the searches of this workspace
  search rates|largest-batch -c X.yaml   find the largest learning rate or batch size that a config can train with
  plan -c X.yaml | --profile P.yaml      predict the speed with 1 to 512 workers
  jobs list|log|stop|move|resume|delete  the queue of this workspace
  cluster start|status|stop              the Ray cluster that jobs run on
  describe [CLASS_PATH]                  print the classes that a config can use, as JSON

`scalebook COMMAND --help` shows a command's options; `scalebook --version` prints the version. Commands use the
workspace around the current folder, or the one that SCALEBOOK_WORKSPACE names.

example:

  scalebook ui notebooks

read on:

  docs/tutorial/first-run.md"""

COMMANDS: Final = {
    "ask": "scalebook.training.cli.ask",
    "fit": "scalebook.training.cli.fit",
    "validate": "scalebook.training.cli.fit",
    "test": "scalebook.training.cli.fit",
    "predict": "scalebook.training.cli.fit",
    "cluster": "scalebook.training.cli.cluster",
    "describe": "scalebook.training.cli.describe_command",
    "jobs": "scalebook.training.cli.jobs",
    "notebook": "scalebook.training.cli.notebook",
    "plan": "scalebook.training.cli.plan",
    "search": "scalebook.training.cli.search",
}
WITH_SUBCOMMAND: Final = ("fit", "validate", "test", "predict")


def main(argv: list[str] | None = None) -> int:
    """Exit code: 0 done, 1 failed, 2 a mistake in the command or the config, said in one line on standard error."""
    argv = sys.argv[1:] if argv is None else argv
    with terminal.escaped_output():
        return _called(argv)


def _is_unread() -> bool:
    """Whether whoever read the output has closed it, as `| head` does."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _called(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0 if argv else 2
    if argv[0] == "--version":
        print(f"scalebook {__version__}")
        return 0
    command, rest = argv[0], argv[1:]
    os.umask(OWNER_ONLY)
    try:
        require_linux()
        if command == "ui":
            os.execve(sys.executable, safe_path.python("-m", "scalebook.app.serve", *rest), safe_path.environment())
        if command not in COMMANDS:
            from scalebook.training.experiments import classes

            raise ConfigError(command, "is not a command", classes.suggestion(command, [*COMMANDS, "ui"]))
        with safe_path.importing():
            module = importlib.import_module(COMMANDS[command])
        with refusals_told():
            code: int = module.main(argv if command in WITH_SUBCOMMAND else rest)
            sys.stdout.flush()
    except ConfigError as error:
        print(f"scalebook: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        if not _is_unread():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # where Python writes the rest at its end
        return 1
    except KeyboardInterrupt:
        print("scalebook: interrupted", file=sys.stderr)
        return 130
    return code


if __name__ == "__main__":
    safe_path.leave_current_folder()
    sys.exit(main())
