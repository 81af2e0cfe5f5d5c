"""What the machine refuses is one line that names what, why, and what to do; all else stays an error of ours."""

import errno

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files.machine_errors import refusals_told


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/w/x"), "/w/x: cannot be used (Permission denied). Grant"),
        (OSError(errno.EROFS, "Read-only file system", "/w"), "/w: cannot be used (Read-only file system). Choose"),
        (OSError(errno.ENOSPC, "No space left on device", "/w"), "Free disk space, then try again."),
        (RuntimeError("(sqlite3.OperationalError) database is locked\n[SQL: INSERT]"), "is locked by another process"),
    ],
)
def test_a_refusal_is_told_also_where_another_error_was_made_of_it(error: Exception, said: str) -> None:
    with pytest.raises(ConfigError) as caught, refusals_told():
        raise error
    assert said in str(caught.value)
    with pytest.raises(ConfigError) as caught, refusals_told():
        raise RuntimeError("of a library") from error
    assert said in str(caught.value)


def test_what_is_no_refusal_passes() -> None:
    with pytest.raises(ZeroDivisionError), refusals_told():
        _ = 1 / 0
    with pytest.raises(ConfigError, match="a key"), refusals_told():
        raise ConfigError("a key", "is wrong", "Mend it.")
