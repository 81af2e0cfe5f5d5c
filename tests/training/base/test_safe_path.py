import gc

import pytest

from scalebook.training.base.safe_path import importing


def fails() -> None:
    with importing():
        assert not gc.isenabled()
        raise ImportError("not there")


@pytest.mark.parametrize("looks", [True, False])
def test_garbage_is_looked_for_again_also_after_an_import_that_fails(looks: bool) -> None:
    before = gc.isenabled()
    (gc.enable if looks else gc.disable)()
    try:
        with pytest.raises(ImportError, match="not there"):
            fails()
        assert gc.isenabled() is looks
    finally:
        (gc.enable if before else gc.disable)()


def test_what_was_imported_is_not_looked_at_again() -> None:
    with importing():
        pass
    assert gc.get_freeze_count() > 10_000
