"""What a person hears who wrote into parameters where that would be lost."""

from collections.abc import Sequence

from scalebook.training.ps.worker.end import WrittenError


def written_error(worker: int, names: Sequence[str], moment: str) -> WrittenError:
    """The error that names these parameters."""
    some = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return WrittenError(
        f"model: worker {worker} wrote into {some} {moment}. Parameters come from the parameter server, so "
        "that would be lost. Write into buffers, or into parameters that never require a gradient; swap weights in "
        "on_validation_start and back in on_validation_end; load weights in on_train_start, the same in every "
        "worker, or in on_train_end; or train with strategy: auto, under which a model may write everywhere."
    )
