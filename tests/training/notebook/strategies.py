"""Generated notebooks and configs for the property tests."""

import json
from typing import Any

from hypothesis import strategies as st

words = st.text("abcxyz_", min_size=1, max_size=6)
names = st.text("abcdefgh0123456789-_.", min_size=1, max_size=10)
scalars: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | st.text(st.characters(codec="utf-8"), max_size=8)
    | st.sampled_from(["on", "1e-3", "null", "# no comment", "a: b", "{x}", "- y", "'", '"', "AsyncPS"])
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=8
)
configs = st.dictionaries(words, values, min_size=1, max_size=5)

PIECES = [
    *(
        "```yaml experiment=a\n",
        "```yaml comparison=b\r\n",
        "```yaml search=d\n",
        "```\n",
        "```",
        "````\n",
        "~~~\n",
        "~~~ yaml experiment=c\n",
    ),
    *(
        "---\n",
        "...\n",
        "title: T\n",
        "config: {model: M}\n",
        "  repeats: 2\n",
        "runs: [a]\n",
        "space: {}\n",
        "> ",
        "- ",
        "\t",
        "  ",
    ),
    *("<!--\n", "-->\n", "\ufeff", "\u2028", "\x0b", "\x00", "\r", "\r\n", "\n"),
    *("&a [*a]\n", "? [k]\n: v\n", "0b\n", "!!x "),
]
rough_texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=6), max_size=20).map("".join)
"""Text near what the parser looks for: fences of all kinds, half front matter, odd line ends."""


@st.composite
def sections(draw: st.DrawFn) -> str:
    """A note, an experiment, a comparison or a search, as a person may write it."""
    kind = draw(st.sampled_from(["note", "experiment", "comparison", "search"]))
    fence = draw(st.sampled_from(["```", "````", "~~~"]))
    blank = draw(st.sampled_from(["", "\n", "\n\n", " \n"]))
    if kind == "note":
        lines = draw(
            st.lists(st.text("ab #*`>-.", max_size=12).filter(lambda line: "```" not in line), min_size=1, max_size=4)
        )
        return "".join(f"{line}\n" for line in lines) + blank
    name = draw(names)
    if kind == "comparison":
        return f"{fence}yaml comparison={name}\nruns: [x]  # which\n{fence}\n{blank}"
    if kind == "search":
        space = "".join(f"  {key}: {json.dumps(value)}  # why {key}\n" for key, value in draw(configs).items())
        return f"{fence}yaml search={name}\n# about\nspace:\n{space}trials: 9  # few\n{fence}\n{blank}"
    config = "".join(f"  {key}: {json.dumps(value)}  # why {key}\n" for key, value in draw(configs).items())
    return f"{fence}yaml experiment={name}\n# about\nconfig:\n{config}{fence}\n{blank}"


@st.composite
def notebooks(draw: st.DrawFn) -> str:
    """The text of a notebook, with LF or CR LF ends."""
    front = draw(st.sampled_from(["", "---\ntitle: T\n---\n\n", "\ufeff", "# Heading\n\n"]))
    text = front + "".join(draw(st.lists(sections(), max_size=6)))
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))
