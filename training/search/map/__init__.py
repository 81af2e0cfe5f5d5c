"""What the trials of a search say about the space between them.

Begin with `landscape.py`, the map ready to be drawn, made of `surface.py` (the interpolated field), `scales.py` and
`shades.py`; `map_pictures.py` draws it outside the browser.
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.search.map import landscape, shades
    from scalebook.training.search.map.map_pictures import MOST_MARKS, map_figure
    from scalebook.training.search.map.scales import Scale, can_be_axis, scale
    from scalebook.training.search.map.shades import Shades
    from scalebook.training.search.map.surface import Iso, ShadeGrid

__all__ = [
    "MOST_MARKS", "Iso", "Scale", "ShadeGrid", "Shades", "can_be_axis", "landscape", "map_figure", "scale", "shades",
]  # fmt: skip

__getattr__ = interface(__name__)
