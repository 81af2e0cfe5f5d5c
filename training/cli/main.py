"""`scalebook COMMAND`: to the module that does the work, each imported only when it is asked for."""

import importlib
import os
import sys
from typing import Final

from scalebook import __version__
from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files.machine_errors import refusals_told
from scalebook.training.base.files.terminal import escaped_output
from scalebook.training.base.safe_path import environment, importing, leave_current_folder, python
from scalebook.training.base.system import require_linux
from scalebook.training.base.workspace import OWNER_ONLY

USAGE: Final = """usage: scalebook COMMAND ...

  ui [FOLDER]                            the notebook in the browser, MLflow and the job queue
  fit -c X.yaml [--key value ...]        run one experiment here; recorded like a run of the browser's
  validate|test|predict -c X.yaml        evaluate a checkpoint (--ckpt_path FILE, or --run ID)
  notebook run|check FILE.md             run a notebook's experiments headless, or only check its cells
  notebook export FILE.md                one HTML file, or Markdown: text, configs, results and charts
  notebook examples FOLDER               copy the notebooks that come with Scalebook into a folder
  search run|check FILE.md --cell NAME   hundreds of configurations, or -c SEARCH.yaml
  search list|show|resume|stop           the searches of this workspace
  search rates|largest-batch -c X.yaml   learning-rate range test; the largest batch that fits
  plan -c X.yaml | --profile P.yaml      where adding workers stops helping, why, and what would move it
  jobs list|log|stop|resume|delete       the queue of this workspace
  cluster start|status|stop              a Ray cluster for `[cluster]` of scalebook.toml: a head here, or join one
  describe [CLASS_PATH]                  models, data, strategies and optimizers as JSON

`scalebook COMMAND --help` says more, `scalebook --version` which release this is. The workspace is found from the
current folder upwards; SCALEBOOK_WORKSPACE overrides."""

COMMANDS: Final = {
    "fit": "scalebook.training.cli.fit",
    "validate": "scalebook.training.cli.fit",
    "test": "scalebook.training.cli.fit",
    "predict": "scalebook.training.cli.fit",
    "cluster": "scalebook.training.cli.cluster",
    "describe": "scalebook.training.cli.describe",
    "jobs": "scalebook.training.cli.jobs",
    "notebook": "scalebook.training.cli.notebook",
    "plan": "scalebook.training.cli.plan",
    "search": "scalebook.training.cli.search",
}
WITH_SUBCOMMAND: Final = ("fit", "validate", "test", "predict")


def main(argv: list[str] | None = None) -> int:
    """Exit code: 0 done, 1 failed, 2 a mistake in the command or the config, said in one line on standard error."""
    argv = sys.argv[1:] if argv is None else argv
    with escaped_output():
        return _called(argv)


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
            os.execve(sys.executable, python("-m", "scalebook.app.serve", *rest), environment())
        if command not in COMMANDS:
            from scalebook.training.experiments.classes import suggestion

            raise ConfigError(command, "is not a command", suggestion(command, [*COMMANDS, "ui"]))
        with importing():
            module = importlib.import_module(COMMANDS[command])
        with refusals_told():
            code: int = module.main(argv if command in WITH_SUBCOMMAND else rest)
    except ConfigError as error:
        print(f"scalebook: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("scalebook: interrupted", file=sys.stderr)
        return 130
    return code


if __name__ == "__main__":
    leave_current_folder()
    sys.exit(main())
