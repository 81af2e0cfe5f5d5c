"""The wheel where nothing else is: built, installed with all that it needs, and used: `make wheel-test`, some minutes.

Needs the standard library and a package index. Packages of a person's own that are called like our folders lie beside
it. `tests/package/test_wheel.py` is the fast part, with the dependencies of the environment that it runs in.
"""

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
import venv
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
UP_S: Final = 120.0
RUN_S: Final = 300.0
INSTALL_S: Final = 1200.0
OWN: Final = "WHOSE = 'mine'\n"
NET: Final = '''"""A model of a person's own, in a package that is called like one of our folders."""

from scalebook.training.zoo.models import MLPClassifier


class Net(MLPClassifier):
    """Nothing new."""
'''
CONFIG: Final = """\
trainer: {max_epochs: 1, accelerator: cpu, devices: 2, strategy: {class_path: scalebook.training.lightning.AsyncPS}}
model: {class_path: training.nets.Net, init_args: {hidden: 8}}
data: {class_path: Digits, init_args: {batch_size: 32, limit: 128}}
"""


def main() -> None:
    """Each step is printed when it holds; an AssertionError ends it."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        python = installed(folder)
        own_packages(python, folder / "work")
        for step in (own_are_found, examples_are_brought, own_model_is_trained, pages_are_served):
            started = time.monotonic()
            step(python.parent / "scalebook", folder / "work")
            print(f"{step.__name__.replace('_', ' ')}: {time.monotonic() - started:.0f} s", flush=True)


def call(*words: str | Path, cwd: Path, timeout_s: float = RUN_S) -> str:
    """What it printed; an AssertionError with everything where it fails."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "MLFLOW"))}
    environment |= {"XDG_STATE_HOME": str(cwd.parent / "state")}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def installed(folder: Path) -> Path:
    """The Python of an empty environment with our wheel and what it asks for."""
    started = time.monotonic()
    venv.create(folder / "environment", with_pip=True)
    python = folder / "environment" / "bin" / "python"
    call(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT, cwd=folder, timeout_s=INSTALL_S)
    (wheel,) = folder.glob("scalebook-*.whl")
    constraints = ROOT / "constraints.txt"
    call(python, "-m", "pip", "install", "-q", "-c", constraints, f"{wheel}[examples]", cwd=folder, timeout_s=INSTALL_S)
    print(f"{wheel.name} with what it needs: {time.monotonic() - started:.0f} s", flush=True)
    return python


def own_packages(python: Path, work: Path) -> None:
    """`app` is installed, `training` and `pages` lie in the folder where the person works."""
    (site,) = python.parents[1].glob("lib/python3*/site-packages")
    for place in (site / "app", work / "training", work / "pages"):
        place.mkdir(parents=True, exist_ok=True)
        (place / "__init__.py").write_text(OWN, encoding="utf-8")
    (work / "training" / "nets.py").write_text(NET, encoding="utf-8")
    (work / "scalebook.toml").write_text('modules = ["training.nets"]\n', encoding="utf-8")
    (work / "x.yaml").write_text(CONFIG, encoding="utf-8")


def own_are_found(scalebook: Path, work: Path) -> None:
    """`import app`, `training` and `pages` are the person's."""
    program = "import app, training, pages; print(app.WHOSE, training.WHOSE, pages.WHOSE)"
    assert call(scalebook.with_name("python"), "-c", program, cwd=work).split() == ["mine"] * 3


def examples_are_brought(scalebook: Path, work: Path) -> None:
    """The notebooks that ship came with the wheel, and their cells are right."""
    call(scalebook, "notebook", "examples", work, cwd=work)
    assert sorted(path.name for path in work.glob("*.md")) == ["batch-size.md", "first-steps.md"]
    assert "no problems" in call(scalebook, "notebook", "check", work / "first-steps.md", "--trust", cwd=work)


def own_model_is_trained(scalebook: Path, work: Path) -> None:
    """By two asynchronous workers."""
    assert "finished" in call(scalebook, "fit", "-c", "x.yaml", "--trust", cwd=work)


def pages_are_served(scalebook: Path, work: Path) -> None:
    """To whom has the address, and to nobody else."""
    environment = {**os.environ, "XDG_STATE_HOME": str(work.parent / "state")}
    process = subprocess.Popen(
        [scalebook, "ui", work], cwd=work, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        address = next(word for word in _lines(process) if word.startswith("http"))
        assert _status(address.partition("?")[0]) == 403
        assert _status(address) == 200
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(UP_S)


def _lines(process: "subprocess.Popen[str]") -> list[str]:
    """Words printed until there is an address."""
    assert process.stdout is not None
    signal.alarm(int(UP_S))  # ends this program
    words: list[str] = []
    while not any(word.startswith("http") for word in words):
        line = process.stdout.readline()
        assert line, f"it ended: {words}"
        words += line.split()
    signal.alarm(0)
    return words


def _status(address: str) -> int:
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    try:
        with opener.open(address, timeout=UP_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


if __name__ == "__main__":
    main()
