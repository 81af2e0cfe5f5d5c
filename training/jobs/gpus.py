"""The GPUs of this machine according to NVIDIA's management library (NVML), without torch or CUDA; or why there are
none.

NVML is opened once per process and stays open: opening takes seconds if the driver keeps no GPU awake. A forked process
opens it again for itself, and never closes it: it would close its parent's.
"""

import importlib.util
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
ORDER: Final = "CUDA_DEVICE_ORDER"
PCI: Final = Path("/sys/bus/pci/devices")
NVIDIA: Final = "0x10de"
MIG: Final = "MIG-"
"""How the UUID of a MIG instance begins. CUDA shows a process one instance, and no GPU beside it."""
HAS_NONE: Final = "has none"


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU, or one MIG instance. `uuid` is what `CUDA_VISIBLE_DEVICES` takes; unlike numbers it does not
    change with settings, and is the same for CUDA and NVML."""

    uuid: str
    name: str
    memory_mb: int
    """0 if it has no memory of its own, or does not report it."""
    cores: list[int] = field(default_factory=list)
    """Numbers of the cores near it (NUMA); none if the driver does not report them."""

    @property
    def is_whole(self) -> bool:
        return not self.uuid.startswith(MIG)


@dataclass(frozen=True)
class GpuReading:
    """A GPU's present state; None for what it does not report."""

    uuid: str
    busy: float | None
    """Share of the last sampling period in which it computed, 0 to 1."""
    memory_mb: float | None
    temperature_c: float | None


class GpusFound(NamedTuple):
    """The GPUs that jobs can use. If there are none, `why` completes the sentence `this machine ...`, and `fix` says
    what to do, if anything can be done."""

    gpus: list[Gpu]
    why: str = ""
    fix: str = ""
    notes: tuple[str, ...] = ()
    """Further notes for people, as whole sentences."""


class _Place(NamedTuple):
    """A GPU by its number on the PCI bus: itself, its instances where it is cut, nothing where it does not answer."""

    uuid: str
    name: str
    gpus: list[Gpu]


class _Nvml(NamedTuple):
    """The opened library, or why it cannot be."""

    library: Any
    why: str = ""
    fix: str = ""


def gpus_here() -> GpusFound:
    """The GPUs that this process's environment allows. The driver is asked once per process."""
    return _found(os.getpid(), os.environ.get(VISIBLE), os.environ.get(ORDER))


def nvml() -> Any:
    """The module `pynvml`, opened in this process; None if it cannot be opened."""
    return _opened(os.getpid()).library


def gpu_readings(uuids: Collection[str]) -> list[GpuReading]:
    """The state of those of the GPUs that answer."""
    library = nvml() if uuids else None
    if library is None:
        return []
    readings = []
    for uuid in uuids:
        with suppress(library.NVMLError):  # lost
            readings.append(_reading(library, uuid))
    return readings


def _reading(nvml: Any, uuid: str) -> GpuReading:
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle) if uuid.startswith(MIG) else handle
    return GpuReading(
        uuid,
        busy=_told(nvml, lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
        memory_mb=_told(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used / 2**20),
        temperature_c=_told(nvml, lambda: float(nvml.nvmlDeviceGetTemperature(parent, nvml.NVML_TEMPERATURE_GPU))),
    )


def _told(nvml: Any, ask: Callable[[], float]) -> float | None:
    """None where this GPU does not tell it, as an instance of one how busy it is."""
    try:
        return ask()
    except nvml.NVMLError:
        return None


@lru_cache(maxsize=4)
def _found(process: int, allowed: str | None, order: str | None) -> GpusFound:
    nvml, why, fix = _opened(process)
    if nvml is None:
        return GpusFound([], why, fix)
    try:
        count = int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError as error:
        return GpusFound([], *_failing(error))
    places, notes = [], []
    for number in range(count):
        try:
            places.append(_place(nvml, nvml.nvmlDeviceGetHandleByIndex(number)))
        except nvml.NVMLError as error:  # the others work
            places.append(_Place("", "", []))
            notes.append(f"GPU {number} is left out: NVML reports {error}.")
    return _for_jobs(places, notes, allowed, order)


def _for_jobs(places: list[_Place], notes: list[str], allowed: str | None, order: str | None) -> GpusFound:
    """Those that the environment lets through, if torch can use them."""
    if not places:
        return GpusFound([], HAS_NONE)
    everything = [gpu for place in places for gpu in place.gpus]
    if not everything:
        cut = "" if notes else f"has {len(places)} in MIG mode, but no MIG instances"
        fix = "Create instances: `nvidia-smi mig -cgi ... -C`." if cut else "See `nvidia-smi`; a restart often helps."
        return GpusFound([], cut or f"has {len(places)}, but none answers: {' '.join(notes)}", fix)
    gpus = visible(places, allowed)
    if not gpus:
        return GpusFound(
            [], f"has {len(everything)}, but {VISIBLE}={allowed} hides all of them", f"Unset {VISIBLE}.", tuple(notes)
        )
    if (version := cpu_build()) is not None:
        why = f"has {gpu_words(gpus)}, but torch {version} is a CPU build"
        command = f"{sys.executable} -m pip install --force-reinstall torch"
        return GpusFound([], why, f"Install torch's CUDA build from the package index: `{command}`.", tuple(notes))
    if allowed and allowed[0].isdigit() and order != "PCI_BUS_ID" and len({place.name for place in places}) > 1:
        notes.append(
            f"{VISIBLE}={allowed} is read in PCI bus order, as in `nvidia-smi`. CUDA may count differently, fastest "
            f"GPU first, because these GPUs are different models. Set {ORDER}=PCI_BUS_ID, or use UUIDs."
        )
    return GpusFound(gpus, notes=tuple(notes))


def gpu_words(gpus: Collection[Gpu]) -> str:
    """`2 GPUs (NVIDIA H100, 80 GB each)`; `3 GPUs (2 x NVIDIA L4, 24 GB each; 1 x NVIDIA T4, 16 GB)`."""
    kinds = Counter((gpu.name, gpu.memory_mb) for gpu in gpus)
    parts = [
        f"{f'{many} x ' if len(kinds) > 1 else ''}{name}"
        + (f", {memory_mb / 1024:.0f} GB{' each' if many > 1 else ''}" if memory_mb else "")
        for (name, memory_mb), many in kinds.items()
    ]
    return f"{len(gpus)} GPU{'' if len(gpus) == 1 else 's'} ({'; '.join(parts)})"


def visible(places: list[_Place], allowed: str | None) -> list[Gpu]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` allows, as CUDA reads it: numbers, or beginnings of UUIDs, up to the first
    invalid one; none if one is listed twice. The number of a GPU in MIG mode means its first instance."""
    if allowed is None:
        return [gpu for place in places for gpu in place.gpus]
    words = [word.strip() for word in allowed.split(",")]
    numbers = words[0].isdigit()
    gpus: list[Gpu] = []
    for word in words:
        if not word or word.isdigit() != numbers:
            break
        matching = _numbered(places, int(word)) if numbers else _beginning(places, word)
        if matching is None:
            break
        if matching and matching[0] in gpus:
            return []
        gpus += matching
    return gpus


def _numbered(places: list[_Place], number: int) -> list[Gpu] | None:
    return places[number].gpus[:1] if number < len(places) else None


def _beginning(places: list[_Place], word: str) -> list[Gpu] | None:
    whole = [place.gpus[:1] for place in places if place.gpus and place.uuid.startswith(word)]
    cut = [[gpu] for place in places for gpu in place.gpus if not gpu.is_whole and gpu.uuid.startswith(word)]
    return [*whole, *cut][0] if len(whole) + len(cut) == 1 else None


def _place(nvml: Any, handle: Any) -> _Place:
    uuid, name = _text(nvml.nvmlDeviceGetUUID(handle)), _text(nvml.nvmlDeviceGetName(handle))
    cores = _near(nvml, handle)
    try:
        is_cut = nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE
    except nvml.NVMLError:  # a model that cannot be cut
        is_cut = False
    if not is_cut:
        return _Place(uuid, name, [Gpu(uuid, name, _memory_mb(nvml, handle), cores)])
    instances = [
        Gpu(_text(nvml.nvmlDeviceGetUUID(mig)), _text(nvml.nvmlDeviceGetName(mig)), _memory_mb(nvml, mig), cores)
        for mig in _instances(nvml, handle)
    ]
    return _Place(uuid, name, instances)


def _instances(nvml: Any, handle: Any) -> Iterator[Any]:
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        with suppress(nvml.NVMLError_NotFound):  # no instance has this number
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)


def _memory_mb(nvml: Any, handle: Any) -> int:
    return int(_told(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total // 2**20) or 0)


def _near(nvml: Any, handle: Any) -> list[int]:
    words = -(-int(os.sysconf("SC_NPROCESSORS_CONF")) // 64)
    try:
        bits = nvml.nvmlDeviceGetCpuAffinity(handle, words)
    except nvml.NVMLError:  # the driver of some virtual machines does not tell
        return []
    return [64 * i + bit for i, word in enumerate(bits) for bit in range(64) if word >> bit & 1]


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


@lru_cache(maxsize=1)
def _opened(process: int) -> _Nvml:
    """Of each `process` its own."""
    try:
        import pynvml
    except ImportError:
        return _Nvml(None, "lacks the package nvidia-ml-py", f"`{sys.executable} -m pip install nvidia-ml-py`.")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        missing = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        if error.value not in missing:
            return _Nvml(None, *_failing(error))
        if not _on_the_bus():
            return _Nvml(None, HAS_NONE)
        fix = (
            "Install or load the driver, and check that `nvidia-smi` lists the GPUs. If this is a container, start it "
            "with GPU access."
        )
        return _Nvml(None, f"has an NVIDIA GPU, but its driver is missing (NVML: {error})", fix)
    return _Nvml(pynvml)


def _failing(error: Any) -> tuple[str, str]:
    return f"has a driver that fails (NVML: {error})", "See `nvidia-smi`; after a driver update, restart the machine."


def _on_the_bus() -> bool:
    """Whether an NVIDIA GPU is there, whatever drives it: PCI class 3 is displays and 3D controllers."""
    for device in PCI.glob("*"):
        with suppress(OSError):
            vendor, kind = ((device / name).read_text(encoding="ascii").strip() for name in ("vendor", "class"))
            if vendor == NVIDIA and kind.startswith("0x03"):
                return True
    return False


def cpu_build() -> str | None:
    """The version of the installed torch if that is a CPU build, else None; found without importing torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    with suppress(OSError):
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
        if re.search(r"^cuda\b.*=\s*None\s*$", text, re.MULTILINE):
            version = re.search(r"^__version__\s*=\s*'(.*)'", text, re.MULTILINE)
            return version.group(1) if version else ""
    return None
