"""A log of clicks in Criteo's format, for tests of what reads it."""

import random
from pathlib import Path

CATEGORIES = 26
NUMBERS = 13


def written(folder: Path, lines: int) -> Path:
    """Of so many lines; two thirds of what could be said are there, and the third category tells what is clicked."""
    draw = random.Random(0)
    path = folder / "train.txt"
    path.write_text("".join(f"{line(draw)}\n" for _ in range(lines)), encoding="ascii")
    return path


def line(draw: random.Random) -> str:
    """One line: about half are clicked, those of one value of the third category; some values are missing."""
    liked = draw.random() < 0.5
    numbers = [str(draw.randint(-1, 2_000)) if draw.random() < 0.8 else "" for _ in range(NUMBERS)]
    words = [f"{draw.randrange(8):08x}" if draw.random() < 0.8 else "" for _ in range(CATEGORIES)]
    words[2] = "68fd1e64" if liked else "80e26c9b"
    clicked = liked if draw.random() < 0.97 else not liked
    return "\t".join((str(int(clicked)), *numbers, *words))
