"""The search: an Optuna study over a config, whose trials are jobs of the supervisor's queue.

Begin with `search_requests.py` (start, resume, stop, find: what buttons and commands call) and `search_folder.py`
(where a search lives). `driver/` is the loop, in a process of its own; `study/` is Optuna, which is asked there and
nowhere else; `map/` is the landscape of its trials. Importing any of this loads neither torch nor Optuna.
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.search import map, search_folder, search_requests, study
    from scalebook.training.search.search_folder import SearchFolder, SearchProgress, SearchResult

__all__ = ["SearchFolder", "SearchProgress", "SearchResult", "map", "search_folder", "search_requests", "study"]

__getattr__ = interface(__name__)
