"""Tables of the Hub and of files on this machine, read by the package datasets as data: no code of theirs is run.

Imports datasets, within functions (some seconds).
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scalebook.training.base import ConfigError
from scalebook.training.zoo.data.cache import cache_folder
from scalebook.training.zoo.data.module import DataError

READERS: Final = {".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json"}
"""By the ending of a file, the reader of datasets."""
IMAGES: Final = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
ALLOWED: Final = (*sorted(set(READERS.values())), "imagefolder", "cache")
"""Readers of datasets that decode data and nothing else: its `pandas`, for one, unpickles. `cache`: what one of them
has read before, where the Hub cannot be reached."""
KINDS: Final = "Parquet, CSV, TSV, JSON, or images in one folder per class"
NAME: Final = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
MEANS: Final = frozenset("*?[]")
"""What datasets takes for a pattern in a path."""


@dataclass(frozen=True)
class TableSource:
    """`path` on this machine, or the data set `hub` of the Hub, of which `subset` and `revision` name a part."""

    path: str | None
    hub: str | None
    subset: str | None
    revision: str | None

    def __post_init__(self) -> None:
        if self.path is None and self.hub is None:
            raise ConfigError(
                "data.init_args.path",
                "is empty",
                "Set path to a file or a folder, or set hub to the name of a data set.",
            )
        if self.path is not None and self.hub is not None:
            raise ConfigError("data.init_args.hub", "is set together with path", "Remove hub or path.")
        if self.hub is None:
            for name in ("subset", "revision"):
                if getattr(self, name) is not None:
                    raise ConfigError(
                        f"data.init_args.{name}", "applies only to data sets from the Hub", "Remove it, or set hub."
                    )
        elif not NAME.fullmatch(self.hub) or Path(self.hub).exists():  # datasets would take a folder of that name
            what = "is a file or folder here" if Path(self.hub).exists() else "is not the name of a data set"
            raise ConfigError(
                "data.init_args.hub", f"{self.hub!r} {what}", "Use OWNER/NAME, or set path for local data."
            )

    def read(self, part: str, key: str) -> Any:
        """The `datasets.Dataset` of a part, which the argument `key` names: a split of the Hub's data set, or a path.

        DataError if it cannot be read. The user's cache keeps what was read.
        """
        import datasets

        datasets.disable_progress_bars()
        if self.hub is None:
            return _of_files(Path(part).expanduser(), f"data.init_args.{key}")
        with _explained(f"data.init_args.hub: {self.hub}"):
            builder = datasets.load_dataset_builder(
                self.hub, self.subset, revision=self.revision, cache_dir=str(_cache())
            )
            _refuse_other(builder, self.hub)
            _refuse_part(builder, part, f"data.init_args.{key}: {self.hub}")  # before a download, where that is known
            builder.download_and_prepare()
            _refuse_part(builder, part, f"data.init_args.{key}: {self.hub}")
            return builder.as_dataset(split=part)

    def holds(self, part: str, file: str) -> bool:
        """Whether a file of an image lies where this source has its files, not anywhere else that a table may name."""
        if self.hub is None:
            folders = [Path(part).expanduser()]
        else:
            from huggingface_hub import constants

            folders = [_cache(), Path(constants.HF_HUB_CACHE)]
        return any(Path(file).resolve().is_relative_to(folder.resolve()) for folder in folders if folder.is_dir())


def _of_files(path: Path, key: str) -> Any:
    import datasets

    reader, files = _found(path, key)
    options: dict[str, Any] = {"drop_labels": False} if reader == "imagefolder" else {}
    if files[0].suffix.lower() == ".tsv":
        options["sep"] = "\t"
    with _explained(f"{key}: {path}"):
        builder = datasets.load_dataset_builder(
            reader, data_files={"train": [str(file) for file in files]}, cache_dir=str(_cache()), **options
        )
        _refuse_other(builder, str(path))
        builder.download_and_prepare()
        return builder.as_dataset(split="train")


def _found(path: Path, key: str) -> tuple[str, list[Path]]:
    """The reader and the files, absolute, in the order of their names."""
    path = path.absolute()
    if not path.exists():
        raise DataError(f"{key}: there is no {path}. Correct the path, or set hub for a data set from the Hub.")
    if "::" in str(path) or "://" in str(path) or MEANS & set(str(path)):
        raise DataError(f"{key}: the path {path} contains one of * ? [ ] ::. Rename the file or folder.")
    all_files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    files = [file for file in all_files if not any(part.startswith(".") for part in file.relative_to(path).parts)]
    by_ending: dict[str, list[Path]] = {}
    for file in files:
        ending = file.suffix.lower()
        if ending in READERS or ending in IMAGES:
            by_ending.setdefault("images" if ending in IMAGES else ending, []).append(file)
    if len(by_ending) != 1:
        what = f"has files of several kinds ({', '.join(sorted(by_ending))})" if by_ending else "has no data"
        raise DataError(f"{key}: {path} {what}. Name a file, or a folder with one kind of files: {KINDS}.")
    ((ending, chosen),) = by_ending.items()
    if ending == "images" and path.is_file():
        raise DataError(f"{key}: {path} is a single image. Name a folder that contains one folder per class.")
    return ("imagefolder" if ending == "images" else READERS[ending]), chosen


def _refuse_other(builder: Any, name: str) -> None:
    prefix = "datasets.packaged_modules."
    modules = [kind.__module__.removeprefix(prefix) for kind in type(builder).__mro__ if prefix in kind.__module__]
    reader = modules[0].partition(".")[0] if modules else "in its own code"
    if reader not in ALLOWED:
        raise DataError(
            f"data: {name} needs the reader {reader}, which is not allowed. Use files of these kinds: {KINDS}."
        )


def _refuse_part(builder: Any, part: str, what: str) -> None:
    splits = builder.info.splits
    if splits and part not in splits:
        raise DataError(f"{what} has no split {part!r}. Use one of {', '.join(splits)}.")


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Errors of datasets as a DataError with a remedy."""
    import datasets

    try:
        yield
    except DataError:
        raise
    except datasets.exceptions.DatasetNotFoundError as error:
        raise DataError(
            f"{what} is not on the Hub, or needs a login ({_line(error)}). Check the name at huggingface.co/datasets. "
            "If the data set is not public, run `hf auth login`."
        ) from error
    except ConnectionError as error:
        raise DataError(
            f"{what} cannot be reached ({_line(error)}). Go online once, or copy the data set's files to this machine "
            "and set path."
        ) from error
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        fix = f"Use complete files of these kinds: {KINDS}."
        if isinstance(error, ValueError) and str(error).startswith(("BuilderConfig", "Config name")):
            fix = "Set subset to one of the data set's subsets."
        raise DataError(f"{what} cannot be read ({_line(error)}). {fix}") from error


def _line(error: BaseException) -> str:
    cause = error.__cause__ or error
    return next((line.strip() for line in str(cause).splitlines() if line.strip()), type(cause).__name__)


def _cache() -> Path:
    return cache_folder() / "datasets"
