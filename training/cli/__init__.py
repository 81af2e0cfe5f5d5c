"""The commands of `scalebook`: each reads its arguments, has the work done, and says what came of it.

Begin with `main.py`, which imports the module of a command when it is asked for. `lightning_cli.py` is LightningCLI
with our defaults, `runner.py` the body of a job's process, `describe.py` says by introspection what configs may name.
"""
