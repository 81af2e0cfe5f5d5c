"""Checkpoints that any Trainer can resume: Lightning's `loops`, with the counts of a single process.

Worker 0 counts its own batches, and its loader keeps what is left of started epochs. A Trainer with one process expects
the batches of all workers, and no loader state. So the file has the latter, and what only AsyncPS can use is under a
key of its own.
"""

from collections.abc import Mapping
from typing import Any, Final

from scalebook.training.lightning.package import Trainer
from scalebook.training.lightning.steps import plain

KEY: Final = "async_ps"
_LOOPS: Final = "loops"
"""Subkey of our key for worker 0's own `loops`."""
_PROGRESS: Final = "epoch_loop.batch_progress"
_LOADERS: Final = "combined_loader"


def for_any_trainer(
    checkpoint: dict[str, Any], workers: int, own_state: dict[str, Any], position: dict[str, Any] | None
) -> dict[str, Any]:
    """The checkpoint to write, from what Lightning has gathered in worker 0.

    `loops` gets the counts of a Trainer with one process; worker 0's own counts, `own_state` and `position` (of the
    shared loader, None without one) go under the key `async_ps`.
    """
    checkpoint = plain(checkpoint)
    fit = checkpoint["loops"]["fit_loop"]
    progress = fit[_PROGRESS]
    loops = {_PROGRESS: progress}
    if position is not None:
        loops[_LOADERS] = [position]
        fit["state_dict"].pop(_LOADERS, None)
    if workers > 1:  # else it is what Lightning says
        counts = progress["current"]
        done = whole = counts["ready"] * workers
        if position is not None:
            done, whole = position["done"] + counts["ready"] - counts["processed"], position["whole"]
        current = whole if progress["is_last_batch"] else done
        before = max(0, fit["epoch_progress"]["current"]["ready"] - 1) * whole
        moved = {"current": _moved(counts, current), "total": _moved(progress["total"], before + current)}
        fit[_PROGRESS] = {**progress, **moved}
    checkpoint[KEY] = {**own_state, _LOOPS: loops}
    return checkpoint


def for_workers(checkpoint: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A loaded checkpoint with worker 0's own counts, as hooks expect it, and the content of the key `async_ps` ({} if
    another strategy wrote the file)."""
    own_state = checkpoint.pop(KEY, {})
    if _LOOPS in own_state:
        fit = {**checkpoint["loops"]["fit_loop"], _PROGRESS: own_state[_LOOPS][_PROGRESS]}
        checkpoint = {**checkpoint, "loops": {**checkpoint["loops"], "fit_loop": fit}}
    return checkpoint, own_state


def position_in(own_state: Mapping[str, Any]) -> dict[str, Any] | None:
    """The data position of the shared loader that wrote the checkpoint; None if there was none."""
    loaders = own_state.get(_LOOPS, {}).get(_LOADERS)
    return loaders[0] if loaders else None


def of_one_process(trainer: Trainer, whole: int, batches: int, is_known: bool) -> dict[str, Any]:
    """The position that a shared loader would have saved, for a checkpoint of a Trainer with one process and the user's
    own loader.

    Args:
        whole: Batches of the epoch in which the checkpoint was written.
        batches: Batches of the loader, without the Trainer's limit.
        is_known: Whether any Trainer would draw the same order.
    """
    progress = trainer.fit_loop.epoch_loop.batch_progress
    epoch = trainer.fit_loop.epoch_progress.current.processed  # type: ignore[attr-defined]  # Lightning types the base class
    done = min(whole, progress.current.processed)  # type: ignore[attr-defined]  # as above
    interval = getattr(trainer, "val_check_interval", 1.0)  # absent where it is a time
    every = interval if isinstance(interval, int) else max(1, int(whole * interval))
    return {
        "left": {} if progress.is_last_batch else {epoch: [[epoch, done, whole]]},
        "batches": batches,
        "validation_due": done > 0 and done % every == 0,
        "known": is_known,
    }


def _moved(counts: dict[str, int], ready: int) -> dict[str, int]:
    """The same moment of a batch, when so many are ready."""
    return {name: max(0, ready - (counts["ready"] - value)) for name, value in counts.items()}
