"""The suite of pages for machines with a GPU: what of it a proxy for NVML can show, and that what is wrong fails."""

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scalebook.training.jobs.gpus import GpuReading
from scalebook.training.jobs.usage import Usage
from tests.e2e import gpu_app
from tests.e2e.conftest import ROOT
from tests.training.jobs.fake_nvml import Put, eight

pytestmark = pytest.mark.thorough

FAKE = """
import sys
from tests.training.jobs.fake_nvml import FakeNvml, eight
sys.modules[__name__] = FakeNvml(eight()[:{count}])
"""
"""In the place of pynvml, in each process that is started."""
BUILD = """
from scalebook.training.jobs import gpus
gpus.cpu_build = lambda: None
"""


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    monkeypatch.setattr(sys, "argv", ["tests.e2e.gpu_app", *words])
    with pytest.raises(SystemExit) as ended:
        gpu_app.main()
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_without_a_gpu_each_is_skipped_by_name(
    nvml: Put, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nvml()
    said = printed(monkeypatch, capsys).partition("Not run:")[2]
    assert [check.name for check in gpu_app.CHECKS if f"{check.name}: no GPU: this machine has none" not in said] == []


def test_without_chromium_each_is_skipped_by_name(
    nvml: Put, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nvml(eight()[:1])
    monkeypatch.setattr(shutil, "which", lambda name: None)
    said = printed(monkeypatch, capsys).partition("Not run:")[2]
    assert [check.name for check in gpu_app.CHECKS if f"{check.name}: no Chromium: none of" not in said] == []


def put(count: int, nvml: Put, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many GPUs, in this process and in all that it starts."""
    nvml(eight()[:count])
    fakes = folder / "fakes"
    fakes.mkdir()
    (fakes / "pynvml.py").write_text(FAKE.format(count=count))
    (fakes / "sitecustomize.py").write_text(BUILD)
    monkeypatch.setenv("PYTHONPATH", f"{fakes}{os.pathsep}{ROOT}")


@pytest.mark.parametrize("count", [1, 8])
def test_the_device_page_shows_gpus(count: int, nvml: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(count, nvml, tmp_path, monkeypatch)
    with ThreadPoolExecutor(1) as thread:  # a browser of its own, which a thread with another one's loop refuses
        told = thread.submit(gpu_app.device_page_shows_gpus, gpu_app.found(), tmp_path).result(timeout=150)
    assert told == f"{count} rows; 0 · NVIDIA H100 37% 0.0 of 79.6 64"


def test_two_jobs_on_two_gpus_have_one_each(nvml: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(2, nvml, tmp_path, monkeypatch)
    told = gpu_app.two_jobs_have_a_gpu_each(gpu_app.found(), tmp_path)
    assert told == "a lease each; CUDA, which is not here, was not asked"


def test_two_jobs_that_share_a_gpu_fail(nvml: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(2, nvml, tmp_path, monkeypatch)
    monkeypatch.setitem(gpu_app.EXPERIMENT, "gpu_share", 0.5)
    with pytest.raises(AssertionError, match=r"\[\['GPU-0'\], \['GPU-0'\]\] are not two of"):
        gpu_app.two_jobs_have_a_gpu_each(gpu_app.found(), tmp_path)


def test_with_one_gpu_two_jobs_are_skipped_by_name(nvml: Put) -> None:
    nvml(eight()[:1])
    (check,) = [one for one in gpu_app.CHECKS if one.body is gpu_app.two_jobs_have_a_gpu_each]
    assert check.lacking(gpu_app.found()) == "needs 2 GPUs, here is 1"


def test_usage_without_the_gpu_fails() -> None:
    def sample(*readings: GpuReading) -> Usage:
        return Usage(1.0, 1.0, 100.0, list(readings))

    good = [sample(GpuReading("GPU-0", 0.5, 900.0, 60.0)), sample(GpuReading("GPU-0", 0.75, 800.0, 60.0))]
    assert gpu_app.used(good, "GPU-0") == "2 samples, 900 MB and 75% busy at most"
    with pytest.raises(AssertionError, match="of 2 samples none is of GPU-1"):
        gpu_app.used(good, "GPU-1")
    with pytest.raises(AssertionError, match="none of its memory was taken"):
        gpu_app.used([sample(GpuReading("GPU-0", 0.5, 0.0, 60.0))], "GPU-0")
