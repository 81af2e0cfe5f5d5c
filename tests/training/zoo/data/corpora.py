"""Small texts in two languages, for tests of what translates."""

from itertools import product

from scalebook.training.zoo.data.parallel_text import Pair, ParallelText

COLOURS = {"red": "rouge", "green": "vert", "blue": "bleu", "yellow": "jaune", "white": "blanc", "black": "noir"}
THINGS = {"house": "la maison", "river": "le fleuve", "engine": "le moteur", "letter": "la lettre", "tree": "l'arbre"}


def sentences() -> list[tuple[str, str]]:
    """All sixty: two ways to speak of each thing in each colour."""
    made = []
    for (colour, couleur), (thing, chose) in product(COLOURS.items(), THINGS.items()):
        made.append((f"Open the {colour} {thing}.", f"Ouvrez {chose} {couleur}."))
        made.append((f"Where is the {colour} {thing}?", f"Où est {chose} {couleur} ?"))
    return made


class Sentences(ParallelText):
    """A data set of one's own: all sixty.

    Args:
        batch_size: Sentences per batch of one worker.
        val_fraction: Share of the sentences held out for validation.
        vocabulary: Largest number of subwords.
    """

    def __init__(self, batch_size: int = 8, val_fraction: float = 0.2, vocabulary: int = 120) -> None:
        super().__init__(batch_size, None, val_fraction, 500, 0, vocabulary, 48)

    def pairs(self) -> list[Pair]:
        return [Pair(*both) for both in sentences()]
