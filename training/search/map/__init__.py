"""What the trials of a search say about the space between them.

Begin with `landscape.py`, the map ready to be drawn, made of `surface.py` (the interpolated field), `scales.py` and
`shades.py`; `map_pictures.py` draws it outside the browser.
"""
