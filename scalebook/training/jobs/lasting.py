"""How long jobs take: what those that run have left, and what those that wait will take, by others of their config."""

from collections.abc import Sequence

from scalebook.training.jobs.folder import JobFolder, JobRequest


def left(job: JobFolder) -> float | None:
    """How long it still takes, as it has last said, s; None where it has not."""
    progress = job.progress()
    return None if progress is None else progress.left_s


class Lasting:
    """What is expected of a job: as long as the longest that has finished with the same config and workers."""

    def __init__(self) -> None:
        self._longest: dict[tuple[str, int], float] = {}

    def note(self, job: JobFolder) -> None:
        """Take in one that has ended. A resumed one tells nothing: it began in the middle."""
        request, result, started = job.request(), job.result(), job.started()
        if not request.config_hash or request.resumed_from or result is None or started is None:
            return
        if result.status == "finished" and result.ended >= started.started:
            key = request.config_hash, request.workers
            self._longest[key] = max(self._longest.get(key, 0.0), result.ended - started.started)

    def of(self, waiting: Sequence[JobRequest]) -> dict[str, float]:
        """Seconds, by id, of those of whose kind one has finished. Of a resumed one it is the most that is left."""
        kinds = {request.id: (request.config_hash, request.workers) for request in waiting}
        return {name: self._longest[kind] for name, kind in kinds.items() if kind in self._longest}
