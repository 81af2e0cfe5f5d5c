import multiprocessing
from pathlib import Path

from scalebook.training.strategies.signals import PlateauStep, Signals


def in_a_child(what: object) -> None:
    process = multiprocessing.get_context("fork").Process(target=what)  # type: ignore[arg-type]
    process.start()
    process.join(10)
    assert process.exitcode == 0


def test_what_one_process_writes_others_read(tmp_path: Path) -> None:
    board, path = Signals(), tmp_path / "ü.ckpt"
    path.touch()

    def write() -> None:
        board.ask_to_stop()
        board.note_checkpoint(path)
        board.add_plateau_step(PlateauStep(1, 0.25))
        board.add_plateau_step(PlateauStep(0, -1e300))

    assert [board.stop, board.checkpoint()] == [False, None]
    assert board.plateau_steps(0) == []
    in_a_child(write)
    assert board.stop
    assert board.checkpoint() == path
    assert board.plateau_steps(0) == [PlateauStep(1, 0.25), PlateauStep(0, -1e300)]
    assert board.plateau_steps(1) == [PlateauStep(0, -1e300)]
    assert board.plateau_steps(2) == []


def test_a_checkpoint_that_is_gone_is_not_named(tmp_path: Path) -> None:
    board, path = Signals(), tmp_path / "gone.ckpt"
    board.note_checkpoint(path)
    assert board.checkpoint() is None
