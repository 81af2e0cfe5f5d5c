"""The commands of `scalebook`: each parses its arguments, calls the module for the work, and prints the result.

Begin with `main.py`, which imports a command's module when the command is used. `lightning_cli.py` is LightningCLI with
Scalebook's defaults, `runner.py` the main function of a job's process; `describe.py` finds by introspection what a
config may name.
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.cli import main

__all__ = ["main"]

__getattr__ = interface(__name__)
