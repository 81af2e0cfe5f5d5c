"""Data that a config names by a path from the workspace's folder: small files go to another node with a job, the rest
has to be there."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from scalebook.training.base import Problem
from scalebook.training.experiments.experiment import Experiment

LARGEST: Final = 64 * 2**20
"""Most bytes of a file that travels with a job."""
LONGEST: Final = 1024
"""Letters of a path."""
_OWN: Final = ("model", "data")
"""Keys below which a folder counts as data: others name where a run writes."""


class StayingPath(NamedTuple):
    """A file or folder that does not travel with a job."""

    key: str
    said: str
    """The path as the config has it."""
    path: str
    """Its path here, without links; another node that has it has it there, too."""
    what: str
    """A folder, or a file of some size."""


def data_of(root: Path, said: Any) -> list[Path]:
    """Files of the workspace that a config names by a path from its folder, each of up to LARGEST bytes."""
    candidates = (root / text for _, text in _texts("", said) if _is_plain(text))
    return sorted({path for path in candidates if path.is_file() and _within(root, path) and _size(path) <= LARGEST})


def staying(root: Path, config: Mapping[str, Any]) -> list[StayingPath]:
    """Larger files, and folders, that the model and data of LightningCLI's input name by a path from the folder."""
    stays = []
    for key, text in _texts("", {key: config.get(key) for key in _OWN}):
        if not _is_plain(text) or key.endswith("class_path"):
            continue
        path = (root / text).resolve()
        if path.is_dir():
            stays.append(StayingPath(key, text, str(path), "a folder"))
        elif path.is_file() and (size := _size(path)) > LARGEST:
            stays.append(StayingPath(key, text, str(path), f"a file of {size / 2**20:.0f} MiB"))
    return stays


def data_path_problems(experiment: Experiment) -> list[Problem]:
    """Warnings about data that does not travel, in a folder whose jobs may run on other nodes."""
    description = experiment.description
    if not (description.clustered and description.folder):
        return []
    stays = staying(Path(description.folder), experiment.completed)
    return [Problem("not-copied", stay.key, *_words(stay), "warning") for stay in stays]


def _words(stay: StayingPath) -> tuple[str, str]:
    what = (
        f"is {stay.said} ({stay.what}), which is not copied to other nodes, because only files of up to 64 MiB are "
        "copied"
    )
    return what, (
        f"Copy it to {stay.path} on each node that may run the job. The job does not start on nodes that do not have "
        f"{stay.path}."
    )


def _texts(key: str, said: Any) -> Iterator[tuple[str, str]]:
    if isinstance(said, str):
        yield key, said
    elif isinstance(said, Mapping | list):
        for name, item in said.items() if isinstance(said, Mapping) else enumerate(said):
            yield from _texts(f"{key}.{name}" if key else str(name), item)


def _is_plain(text: str) -> bool:
    """A path downwards, to nothing hidden."""
    if not 0 < len(text) < LONGEST or "\0" in text or Path(text).is_absolute():
        return False
    return not any(part.startswith(".") for part in Path(text).parts) and bool(Path(text).parts)


def _within(root: Path, path: Path) -> bool:
    return path.resolve().is_relative_to(root.resolve())


def _size(path: Path) -> int:
    return path.stat().st_size


IMAGES: Final = {"Digits": 1797}
"""Of the data sets that ship, before the validation part is taken out."""


def most_samples(experiment: Experiment) -> int | None:
    """Most samples on which an experiment trains, for a data set that ships; None if unknown."""
    info = experiment.data.info
    if info is None or info.source != "scalebook":
        return None
    return _least(IMAGES.get(info.name), experiment.data.args.get("limit"))


def training_samples(experiment: Experiment) -> int | None:
    """About how many samples an experiment trains on; None if the data set does not say."""
    info, args = experiment.data.info, experiment.data.args
    held_out = experiment.data.setting("val_fraction")
    samples = IMAGES.get(info.name) if info is not None and info.source == "scalebook" else None
    if samples is not None and isinstance(held_out, int | float):
        samples = int(samples * (1 - held_out))
    return _least(samples, args.get("limit"))


def _least(samples: int | None, limit: Any) -> int | None:
    cap = limit if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0 else None
    return min((number for number in (samples, cap) if number is not None), default=None)
