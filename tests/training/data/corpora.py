"""Small texts in two languages, for tests of what translates."""

from itertools import product
from pathlib import Path

COLOURS = {"red": "rouge", "green": "vert", "blue": "bleu", "yellow": "jaune", "white": "blanc", "black": "noir"}
THINGS = {"house": "la maison", "river": "le fleuve", "engine": "le moteur", "letter": "la lettre", "tree": "l'arbre"}
WHOSE = "\tCC-BY 2.0 (France) Attribution: tatoeba.org #1 (CK) & #2 (sacredceltic)"


def sentences() -> list[tuple[str, str]]:
    """All sixty: two ways to speak of each thing in each colour."""
    made = []
    for (colour, couleur), (thing, chose) in product(COLOURS.items(), THINGS.items()):
        made.append((f"Open the {colour} {thing}.", f"Ouvrez {chose} {couleur}."))
        made.append((f"Where is the {colour} {thing}?", f"Où est {chose} {couleur} ?"))
    return made


def written(folder: Path, attributed: bool = True) -> Path:
    """The sentences as Tatoeba and ManyThings distribute theirs."""
    path = folder / "fra.txt"
    lines = [f"{source}\t{target}{WHOSE if attributed else ''}\n" for source, target in sentences()]
    path.write_text("".join(lines), encoding="utf-8")
    return path
