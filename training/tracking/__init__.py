"""What is recorded of a run, in MLflow: the names, the logger that writes them, and reading them back.

Begin with `names.py`, where every metric, tag and parameter stands once. `run_start.py` begins a run's record,
`logger.py` writes while it trains, `run_reader.py` reads it back without torch; `drawing.py` draws curves outside the
browser.
"""

from typing import TYPE_CHECKING

from scalebook.training.lazy import interface

if TYPE_CHECKING:
    from scalebook.training.tracking import (
        directions,
        drawing,
        names,
        notes,
        own_metrics,
        run_start,
        worker_figures,
    )
    from scalebook.training.tracking.curves import mean_curve, smooth, thin
    from scalebook.training.tracking.directions import Direction, Goal
    from scalebook.training.tracking.drawing import DrawnCurve
    from scalebook.training.tracking.estimates import (
        Estimate,
        Reached,
        estimate,
        reached,
        student_quantile,
    )
    from scalebook.training.tracking.logger import Axes, RunLogger, names_class, upload
    from scalebook.training.tracking.moved_workspace import adopt_artifacts, store_with
    from scalebook.training.tracking.notebook_runs import MOST_OF_NOTEBOOK, NotebookRuns
    from scalebook.training.tracking.run_reader import (
        NEWEST_FIRST,
        OLDEST_FIRST,
        MetricCurve,
        NoRuns,
        RunReader,
        RunRecord,
        tag_is,
    )
    from scalebook.training.tracking.schema import require_known
    from scalebook.training.tracking.spool import LINES, SPOOL, Spool
    from scalebook.training.tracking.worker_figures import WorkerFile

__all__ = [
    "LINES", "MOST_OF_NOTEBOOK", "NEWEST_FIRST", "OLDEST_FIRST", "SPOOL", "Axes", "Direction", "DrawnCurve",
    "Estimate", "Goal", "MetricCurve", "NoRuns", "NotebookRuns", "Reached", "RunLogger", "RunReader", "RunRecord",
    "Spool", "WorkerFile", "adopt_artifacts", "directions", "drawing", "estimate", "mean_curve", "names",
    "names_class", "notes", "own_metrics", "reached", "require_known", "run_start", "smooth", "store_with",
    "student_quantile", "tag_is", "thin", "upload", "worker_figures",
]  # fmt: skip

__getattr__ = interface(__name__)
