"""What a stranger's files hold comes to a terminal written out, whichever command shows it."""

import contextlib
import io
import os
import pty
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from scalebook.training.base.files.terminal import EscapingStream, escaped_output, give, untouched, visible
from scalebook.training.base.workspace import Workspace
from scalebook.training.cli.main import main
from scalebook.training.cli.run_lines import RunLines
from scalebook.training.jobs.job_folder import Result
from tests.shared_files import Prepared
from tests.training.benches import Bench

EVIL = "\x1b[31mred\x1b]0;title\x07\u202egpj\u200b\x9b2J\x7f\r"
PAGE = f"""# Page {EVIL}

```yaml experiment={EVIL.rstrip()}
config: {{}}
```

```yaml experiment=a
config:
  model: {{class_path: "{EVIL[:-1]}"}}
  "{EVIL[1:6]}\u202e": 1
```

```yaml claim=b\u202e
better: a
```
"""
HARMFUL = ("\x1b", "\x07", "\u202e", "\u200b", "\x9b", "\x7f")


def seen(act: Callable[[], object], deadline_s: float = 60.0) -> str:
    """What a terminal gets from `act`, called in a fork."""
    pid, terminal = pty.fork()
    if pid == 0:
        sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
        try:
            act()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
    content, deadline = b"", time.monotonic() + deadline_s
    with contextlib.suppress(OSError):  # its end, on Linux
        while (more := os.read(terminal, 65536)) and time.monotonic() < deadline:
            content += more
    os.close(terminal)
    os.waitpid(pid, 0)
    return content.decode("utf-8")


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("plain, é, 日本語, ünï\tcode\n", "plain, é, 日本語, ünï\tcode\n"),
        ("a\u00a0b\u3000c", "a\u00a0b\u3000c"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b2J\x07\x08\x7f\r", "\\x9b2J\\x07\\x08\\x7f\\r"),
        ("a\u202eb\u2066c\u200bd\u2028e\ufefff", "a\\u202eb\\u2066c\\u200bd\\u2028e\\ufefff"),
        ("\udcff", "\\udcff"),
    ],
)
def test_what_has_no_shape_is_escaped_and_nothing_else(text: str, escaped: str) -> None:
    assert visible(text) == escaped


def test_no_command_lets_names_through(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(bench.workspace.root))
    page = bench.workspace.root / "page\x1b[31m.md"
    page.write_text(PAGE, encoding="utf-8", newline="")
    job = bench.job(name=EVIL)
    job.log.write_text(f"training {EVIL}\nhalf\rwhole\n", encoding="utf-8", newline="")
    job.write(Result("failed", time.time(), f"worse {EVIL}", f"cause {EVIL}"))
    for words, said in {
        f"notebook check {page}": "\\x1b[31mred",
        f"notebook run {page} --cell \u202e": "\\u202e",
        f"search run {page}": "--cell",
        "jobs list": "\\u202egpj",
        f"jobs log {job.id}": "training \\x1b[31mred",
        "jobs log \x1b[31m": "is not a job",
        "\x1b[31m": "\\x1b[31m",
    }.items():
        shown_ = seen(lambda words=words: main(words.split(" ")))  # type: ignore[misc]  # the loop's own
        assert said in shown_, (words, shown_)
        assert [bad for bad in HARMFUL if bad in shown_] == [], words
        assert "\r" not in shown_.replace("\r\n", ""), words
        assert "Traceback" not in shown_, words


def test_a_name_makes_no_line_of_its_own_and_no_page(
    tmp_path: Path, prepared: Prepared, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared.describe(Workspace(tmp_path).create())
    page = tmp_path / "x\nscalebook: error.md"
    page.write_text(f"```yaml experiment={'n' * 100_000}\nconfig: {{}}\n```\n", encoding="utf-8")
    assert main(["notebook", "check", str(page)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert all(line.startswith(f"{tmp_path}/x scalebook: error.md:") for line in lines)
    assert all(len(line) < 2000 for line in lines)


def test_a_job_s_name_makes_no_row(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(bench.workspace.root))
    bench.job(name="x\nfeedbeef  finished")
    assert main(["jobs", "list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_log_goes_to_a_file_as_the_run_wrote_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(bench.workspace.root))
    job = bench.job()
    job.log.write_text(f"training {EVIL}\n", encoding="utf-8", newline="")
    job.write(Result("finished", time.time()))
    assert main(["jobs", "log", job.id]) == 0
    assert capsys.readouterr().out == f"training {EVIL}\n"


def test_what_we_draw_ourselves_moves_the_cursor_and_names_in_it_do_not(bench: Bench) -> None:
    job = bench.job(name=EVIL)

    def draw() -> None:
        with escaped_output():
            RunLines(sys.stdout, [job], {}).draw({job.id: "waiting"}, {})

    drawn = seen(draw)
    assert drawn.startswith("\x1b[2K\\x1b[31mred")
    assert drawn.endswith("\x1b[J")
    assert drawn.count("\x1b") == 2


def test_a_program_in_the_foreground_prints_as_it_likes_and_a_poor_encoding_ends_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out"
    before = sys.stdout
    with path.open("w", encoding="ascii") as out, contextlib.redirect_stdout(out), escaped_output():
        print("é \x1b")
        with untouched():
            print("\x1b[1A")
            assert sys.stdout is out
        give("\x1b é\n")
        assert isinstance(sys.stdout, EscapingStream)
        assert (sys.stdout.encoding, sys.stdout.isatty()) == ("ascii", False)
    assert sys.stdout is before
    assert path.read_text(encoding="ascii") == "\\xe9 \\x1b\n\x1b[1A\n\x1b \\xe9\n"
    out_ = io.StringIO()
    EscapingStream(out_).writelines(["a\x1b", "b"])
    assert out_.getvalue() == "a\\x1bb"
