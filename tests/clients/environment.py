"""An environment with the libraries, on top of the one that runs this, which torch, Lightning and Scalebook are of."""

import subprocess
import sysconfig
import venv
from importlib.metadata import version
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
KEPT: Final = ("torch", "lightning", "pytorch-lightning", "lightning-utilities", "torchmetrics")
"""Never another version than the tests' own; of the rest a library gets what it asks for."""


class Environment:
    """A virtual environment in `folder`, which may be removed at any time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.expanduser().absolute()
        self.python = self._folder / "bin" / "python"

    def prepare(self, packages: list[str]) -> dict[str, str]:
        """Install what is missing; those that cannot be, with the reason."""
        if not self.python.exists():
            print(f"makes {self._folder}, some minutes and 1.5 GB", flush=True)
            venv.create(self._folder, with_pip=True)
        below = sysconfig.get_path("purelib")
        site = Path(self._say("import sysconfig; print(sysconfig.get_path('purelib'))").strip())
        (site / "below.pth").write_text(f"import site; site.addsitedir({below!r})\n", encoding="utf-8")
        (self._folder / "kept.txt").write_text(
            "".join(f"{name}=={version(name).partition('+')[0]}\n" for name in KEPT), encoding="utf-8"
        )
        if not packages or self._install(packages) is None:
            return {}
        return {one: reason for one in packages if (reason := self._install([one])) is not None}

    def _install(self, packages: list[str]) -> str | None:
        """None, or why not."""
        arguments = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "-c",
            str(self._folder / "kept.txt"),
        ]
        done = subprocess.run(
            [self.python, *arguments, *packages], capture_output=True, text=True, timeout=1800, check=False
        )
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        return None if done.returncode == 0 else (errors or ["ERROR: pip failed"])[-1]

    def _say(self, code: str) -> str:
        return subprocess.run([self.python, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
