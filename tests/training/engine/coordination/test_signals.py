import multiprocessing
from pathlib import Path

from scalebook.training.engine.coordination.worker_messages import PlateauStep, SharedSignals
from scalebook.training.engine.memory.region import Control


def in_a_child(what: object) -> None:
    process = multiprocessing.get_context("fork").Process(target=what)  # type: ignore[arg-type]
    process.start()
    process.join(10)
    assert process.exitcode == 0


def test_what_one_process_writes_others_read(tmp_path: Path) -> None:
    signals, path = SharedSignals(Control(1)), tmp_path / "ü.ckpt"
    path.touch()

    def write() -> None:
        signals.ask_to_stop()
        signals.note_checkpoint(path)
        signals.add_plateau_step(PlateauStep(1, 0.25))
        signals.add_plateau_step(PlateauStep(0, -1e300))

    assert [signals.stop, signals.checkpoint()] == [False, None]
    assert signals.plateau_steps(0) == []
    in_a_child(write)
    assert signals.stop
    assert signals.checkpoint() == path
    assert signals.plateau_steps(0) == [PlateauStep(1, 0.25), PlateauStep(0, -1e300)]
    assert signals.plateau_steps(1) == [PlateauStep(0, -1e300)]
    assert signals.plateau_steps(2) == []


def test_a_checkpoint_that_is_gone_is_not_named(tmp_path: Path) -> None:
    signals, path = SharedSignals(Control(1)), tmp_path / "gone.ckpt"
    signals.note_checkpoint(path)
    assert signals.checkpoint() is None
