import os

import pytest

from scalebook.training.engine.memory.shared_memory import anonymous_file


@pytest.mark.parametrize("old_glibc", [False, True])
def test_an_anonymous_file_has_no_name_and_is_empty(old_glibc: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a Python that was built without `os.memfd_create`."""
    if old_glibc:
        monkeypatch.delattr(os, "memfd_create")
    descriptor = anonymous_file("things")
    try:
        assert os.pwrite(descriptor, b"abc", 5) == 3
        assert os.pread(descriptor, 100, 0) == bytes(5) + b"abc"
        assert os.fstat(descriptor).st_nlink == 0
    finally:
        os.close(descriptor)
