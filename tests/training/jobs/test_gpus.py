"""Which GPUs there are, and why there are none. By a proxy for NVML: what a real one says, `make gpu` shows."""

import os
import sys
from pathlib import Path

import pytest

from scalebook.training.jobs import gpus
from scalebook.training.jobs.devices import this_machine
from scalebook.training.jobs.gpus import Gpu, GpuReading, gpu_readings, gpu_words, gpus_here
from tests.training.jobs.fake_nvml import FakeGpu, FakeNvml, Put, eight, forget

CUT = FakeGpu(
    "GPU-cut", "H200", near=[1],
    instances=[FakeGpu("MIG-x1", "H200 MIG 1g", 10_000), FakeGpu("MIG-x2", "H200 MIG 1g", 10_000)],
)  # fmt: skip


def uuids() -> list[str]:
    return [gpu.uuid for gpu in gpus_here().gpus]


@pytest.mark.parametrize("count", [0, 1, 8])
def test_all_gpus_are_found_with_the_cores_near_them(count: int, nvml: Put) -> None:
    nvml(eight()[:count])
    found = this_machine().gpus
    assert [gpu.uuid for gpu in found] == [f"GPU-{n}" for n in range(count)]
    assert [gpu.memory_mb for gpu in found] == [81_559] * count
    assert [gpu.cores[:1] for gpu in found] == ([[0]] * 4 + [[8]] * 4)[:count]
    assert (gpus_here().why, gpus_here().notes) == ("" if count else "has none", ())


def test_nvml_is_opened_once_a_process_and_again_by_a_forked_one(nvml: Put) -> None:
    fake = nvml(eight())
    for _ in range(3):
        assert len(this_machine().gpus) == len(gpu_readings(uuids())) == 8
    assert fake.opened == [os.getpid()]
    child = os.fork()
    if child == 0:  # its list of who has opened it is a copy: the fake refuses those that are not in it
        try:
            os._exit(len(this_machine().gpus) * (fake.opened[1:] == [os.getpid()]))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 8
    assert fake.opened == [os.getpid()]


def test_a_gpu_that_fails_hides_no_other(nvml: Put) -> None:
    nvml([FakeGpu("GPU-a"), FakeGpu("GPU-b", lost=True), FakeGpu("GPU-c")])
    found = gpus_here()
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-a", "GPU-c"]
    assert found.notes == ("GPU 1 is left out: NVML reports GPU is lost.",)
    assert [one.uuid for one in gpu_readings(["GPU-a", "GPU-b", "GPU-c"])] == ["GPU-a", "GPU-c"]
    nvml([FakeGpu("GPU-a", lost=True)])
    assert gpus_here().why == "has 1, but none answers: GPU 0 is left out: NVML reports GPU is lost."


def test_what_a_gpu_does_not_tell_is_none(nvml: Put) -> None:
    nvml([FakeGpu("GPU-a", heat=None), CUT, FakeGpu("GPU-b", "RTX 4090", memory_mb=None, near=None)])
    assert gpu_readings(["GPU-a", "MIG-x2"]) == [
        GpuReading("GPU-a", 0.37, 3.0, None),
        GpuReading("MIG-x2", None, 3.0, 64.0),
    ]
    assert gpus_here().gpus[-1] == Gpu("GPU-b", "RTX 4090", 0)
    assert gpu_readings([]) == []


A, B, C = "GPU-aaaa", "GPU-abbb", "GPU-cccc"


@pytest.mark.parametrize(
    ("told", "seen"),
    [
        (None, [A, B, "MIG-x1", "MIG-x2", C]),
        ("", []),
        ("1", [B]),
        ("3,0", [C, A]),
        (" 1 , 0", [B, A]),
        ("0,7,1", [A]),  # CUDA stops at the first that is none
        ("-1", []),
        ("0,-1,1", [A]),
        ("0,0", []),  # twice is a mistake to CUDA, and nothing is visible
        ("2", ["MIG-x1"]),  # of a GPU that is cut CUDA shows the first instance
        ("GPU-aa", [A]),
        ("GPU-a", []),  # the beginning of two
        ("GPU-cccc,GPU-ab", [C, B]),
        ("GPU-cccc,GPU-zz,GPU-ab", [C]),
        ("GPU-cccc,0", [C]),
        ("MIG-x2", ["MIG-x2"]),
        ("GPU-cut", ["MIG-x1"]),
        ("GPU-aa,GPU-aaaa", []),
        ("all", []),
    ],
)
def test_gpus_are_those_the_variable_lets_through(
    told: str | None, seen: list[str], nvml: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml([FakeGpu(A), FakeGpu(B), CUT, FakeGpu(C)])
    if told is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", told)
    assert uuids() == seen
    if not seen:
        assert gpus_here().why == f"has 5, but CUDA_VISIBLE_DEVICES={told} hides all of them"


def test_numbers_of_several_models_are_said_to_be_the_bus_s(nvml: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml([FakeGpu(A, "T4"), FakeGpu(C, "H200")])
    assert gpus_here().notes == ()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    (note,) = gpus_here().notes
    assert "CUDA_VISIBLE_DEVICES=0 is read in PCI bus order" in note
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in note
    assert uuids() == [A]
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert gpus_here().notes == ()
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", C)
    assert (uuids(), gpus_here().notes) == ([C], ())


def test_a_cut_gpu_without_instances_lends_nothing_and_says_so(nvml: Put) -> None:
    nvml([FakeGpu("GPU-a", instances=[])])
    assert (gpus_here().gpus, gpus_here().why) == ([], "has 1 in MIG mode, but no MIG instances")


@pytest.mark.parametrize(
    ("error", "on_the_bus", "why"),
    [
        (FakeNvml.NVML_ERROR_LIBRARY_NOT_FOUND, False, "has none"),
        (
            FakeNvml.NVML_ERROR_LIBRARY_NOT_FOUND,
            True,
            "has an NVIDIA GPU, but its driver is missing (NVML: NVML Shared Library Not Found)",
        ),
        (
            FakeNvml.NVML_ERROR_DRIVER_NOT_LOADED,
            True,
            "has an NVIDIA GPU, but its driver is missing (NVML: Driver Not Loaded)",
        ),
        (FakeNvml.MISMATCH, False, "has a driver that fails (NVML: Driver/library version mismatch)"),
    ],
)
def test_what_is_missing_is_named(
    error: int, on_the_bus: bool, why: str, nvml: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, vendor, kind in (("net", "0x10de", "0x020000"), ("display", "0x10de", "0x030200")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(vendor if on_the_bus or name == "net" else "0x1002")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    monkeypatch.setattr(gpus, "PCI", tmp_path)
    nvml(error=error)
    found = gpus_here()
    assert (found.gpus, found.why) == ([], why)
    assert bool(found.fix) == (why != "has none")
    assert gpu_readings(["GPU-a"]) == []


def test_a_torch_for_cpus_is_named_with_the_command_that_replaces_it(
    nvml: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = gpus.cpu_build
    nvml(eight())
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    version = tmp_path / "torch" / "version.py"
    version.write_text("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n")
    assert build() == "2.13.0+cpu"
    monkeypatch.setattr(gpus, "cpu_build", build)
    forget()
    found = gpus_here()
    assert (found.gpus, found.why) == (
        [],
        "has 8 GPUs (NVIDIA H100, 80 GB each), but torch 2.13.0+cpu is a CPU build",
    )
    assert f"`{sys.executable} -m pip install --force-reinstall torch`" in found.fix
    version.write_text("__version__ = '2.13.0'\ncuda: Optional[str] = '13.0'\n")
    assert build() is None


def test_gpus_in_words_count_models() -> None:
    one, other = Gpu("GPU-a", "NVIDIA L4", 23034), Gpu("GPU-b", "NVIDIA GB10", 0)
    assert gpu_words([one]) == "1 GPU (NVIDIA L4, 22 GB)"
    assert gpu_words([one, other, one]) == "3 GPUs (2 x NVIDIA L4, 22 GB each; 1 x NVIDIA GB10)"
