"""What a page shows of its commands' output is what they print."""

from pathlib import Path

import pytest

from docs.generate.outputs import refreshed

PAGE = """# Page

```sh title="say.sh"
echo 'the best of 8:'; echo ' 7  0.31 rate 3.9e-02'; echo; echo ' 2  0.4 rate 1'; echo done in 5 s
```

```sh
bash say.sh
```

Text.

```text {.varies}
the best of 2:
 1  0.2 rate 5
```

```text
done in
```

```sh {.not-run reason="needs a network"}
curl http://127.0.0.1:1
```

```text
never
```
"""


def test_a_page_has_todays_numbers(tmp_path: Path) -> None:
    """In lines that it had before; of commands that are not run it keeps what it has."""
    page, folder = tmp_path / "page.md", tmp_path / "folder"
    folder.mkdir()
    page.write_text(PAGE, encoding="utf-8")
    new = PAGE.replace("best of 2", "best of 8").replace("done in\n", "done in 5 s\n")
    new = new.replace(" 1  0.2 rate 5", " 7  0.31 rate 3.9e-02")
    assert refreshed(page, folder) == new
    page.write_text(new, encoding="utf-8")
    assert refreshed(page, folder) == new


def test_a_line_that_is_no_longer_printed_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\necho one\n```\n\n```text\ntwo\n```\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no command prints 'two'"):
        refreshed(page, tmp_path)
