"""Which batch sizes to try: doubling until one does not fit, then bisection."""

from typing import Final

FIRST: Final = 8
PRECISION: Final = 32
"""Bisection ends when what is left is 1/32 of the largest that fits: memory is not told more sharply."""


class Bracket:
    """Sizes are multiples of `multiple`, at most `most`. After a size that did not fit only smaller ones are tried."""

    def __init__(self, most: int, multiple: int = 1) -> None:
        self.multiple = multiple
        self.fits = 0
        """The largest known to fit."""
        self.too_large: int | None = None
        """The smallest known not to."""
        self.most = self._down(most)

    def next(self) -> int | None:
        """The size to try now; None when the answer is `fits`."""
        if self.too_large is None:
            size = min(self.most, 2 * self.fits or max(self.multiple, self._down(FIRST)))
            return size if size > self.fits else None
        if self.too_large - self.fits <= max(self.multiple, self.fits // PRECISION):
            return None
        middle = max(self.fits + self.multiple, self._down((self.fits + self.too_large) // 2))
        return middle if middle < self.too_large else None

    def note_try(self, size: int, fits: bool) -> None:
        """How a try ended."""
        if fits:
            self.fits = max(self.fits, size)
        else:
            self.too_large = size if self.too_large is None else min(size, self.too_large)

    def lower(self, most: int) -> None:
        """No size above `most` can be, for another reason than memory."""
        self.most = min(self.most, self._down(most))

    @property
    def step(self) -> int:
        """The answer is this sharp: sizes that were not tried begin within so many samples."""
        return 0 if self.too_large is None else self.too_large - self.fits

    def _down(self, size: int) -> int:
        return size // self.multiple * self.multiple
