"""What a job needs on another node (config, checkpoint, the workspace's modules, data that it names), sent by content
hash.

A file is sent once, under its hash; a file that the node has is not sent again. The modules of each state of the
workspace get their own folder there, so that a job runs with the code it was started with. This module has both ends:
what is sent, and how the node unpacks it.
"""

import hashlib
import json
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import scalebook
from scalebook.training.base import SETTINGS, Workspace, source_files, trust
from scalebook.training.base.files import BrokenRecord, records, yaml
from scalebook.training.cluster.cluster_spool import JobOrder
from scalebook.training.cluster.rendezvous import Rendezvous
from scalebook.training.experiments import data_of, staying
from scalebook.training.jobs import Allocation, JobFolder, begin_request, kept_environment

MARK: Final = "machine"
"""A file of the hidden folder with a random word: a node that reads the same word there shares the folder with us."""
CHECKPOINT: Final = "ckpt_path"
FILES: Final = ("job.json", "config.yaml")


@dataclass(frozen=True)
class Parcel:
    """What an agent needs to start a job. Files are named by their hash (SHA-256)."""

    job: str
    home: str
    """The job's folder here."""
    cores: list[int]
    gpus: list[str]
    files: dict[str, str]
    """Files of the job's folder, by name."""
    code: dict[str, str]
    """Files of the workspace, by path: settings, modules, and data that the config names."""
    checkpoint: str
    """"" if the job does not resume."""
    trusted: bool
    mark: tuple[str, str]
    """A file of the hidden folder here, and its content; "" if the folder is not shared."""
    parts: list[str] = field(default_factory=list)
    others: list[Allocation] = field(default_factory=list)
    """See `JobOrder`."""
    stays: dict[str, str] = field(default_factory=dict)
    """Data that is not copied: path within the workspace -> where it lies, here and on the node."""
    node: int = 0
    rendezvous: Rendezvous | None = None
    """For a run on several nodes: where they meet."""
    environment: dict[str, str] = field(default_factory=dict)
    """The variables of whoever submitted it that cross nodes."""

    @property
    def hashes(self) -> list[str]:
        return [*self.files.values(), *self.code.values(), *([self.checkpoint] if self.checkpoint else [])]

    @property
    def code_hash(self) -> str:
        content = [sorted(self.code.items()), self.trusted, sorted(self.stays.items())]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def parcel(
    workspace: Workspace, job: JobFolder, order: JobOrder, rendezvous: Rendezvous | None
) -> tuple[Parcel, dict[str, Path]]:
    """The job's parcel, and by hash where its files lie here. OSError, BrokenRecord if they cannot be read."""
    paths: dict[str, Path] = {}

    def named(path: Path) -> str:
        digest = digest_of(path)
        paths[digest] = path
        return digest

    content = _content(job)
    code_files = [*_own(workspace), *data_of(workspace.root, content)]
    code = {str(path.relative_to(workspace.root)): named(path) for path in code_files}
    packed = Parcel(
        job=job.id,
        home=str(job.path),
        cores=order.cores,
        gpus=order.gpus,
        files={name: named(job.path / name) for name in FILES if (job.path / name).exists()},
        code=code,
        checkpoint=named(checkpoint) if (checkpoint := _checkpoint(job)) is not None else "",
        trusted=trust.trusted(workspace),
        mark=_mark(workspace),
        parts=order.parts,
        others=order.others,
        stays={item.said: item.path for item in staying(workspace.root, content)},
        node=order.node,
        rendezvous=rendezvous,
        environment=_environment(workspace, job),
    )
    return packed, paths


def _environment(workspace: Workspace, job: JobFolder) -> dict[str, str]:
    """What `[cluster]` names of the run's variables; a part has those of its run."""
    variables = kept_environment(workspace.jobs / begin_request.run_of(job.id)) or {}
    return {name: variables[name] for name in workspace.settings.cluster.environment if name in variables}


def _own(workspace: Workspace) -> list[Path]:
    """The settings, and the modules in the workspace; installed ones must be installed on the node too."""
    settings = workspace.root / SETTINGS
    modules = [path for path in source_files(workspace) if path.is_relative_to(workspace.root)]
    return [*([settings] if settings.is_file() else []), *modules]


def _content(job: JobFolder) -> dict[str, Any]:
    try:
        return job.content()
    except BrokenRecord:
        return {}  # the job's process says what is wrong with its config


def _checkpoint(job: JobFolder) -> Path | None:
    path = _content(job).get(CHECKPOINT)
    return Path(path) if isinstance(path, str) and Path(path).is_absolute() and Path(path).is_file() else None


def with_checkpoint(config: bytes, checkpoint: Path) -> bytes:
    """The config, with the checkpoint's path on this node."""
    content: Mapping[str, Any] = yaml.load(config.decode("utf-8"), ours=True)
    return yaml.dump({**content, CHECKPOINT: str(checkpoint)}).encode()


def _mark(workspace: Workspace) -> tuple[str, str]:
    if workspace.settings.cluster.files == "copied":
        return "", ""
    path = workspace.hidden / "cluster" / MARK
    if not path.exists():
        records.put(path, secrets.token_hex(16).encode())
    return str(path), path.read_text(encoding="ascii")


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def package_hash() -> str:
    """The hash of Scalebook's sources, whether installed or in a checkout: nodes with other sources get no jobs."""
    digests = [(path.name, digest_of(path)) for path in Path(scalebook.__file__).parent.glob("*.py")]
    for folder in scalebook.SUBPACKAGES:
        digests += [(str(path.relative_to(scalebook.SOURCES)), digest_of(path)) for path in folder.rglob("*.py")]
    return hashlib.sha256(json.dumps(sorted(digests)).encode()).hexdigest()


def is_shared(parcel: Parcel) -> bool:
    """Whether this node sees the workspace's own folder."""
    path, word = parcel.mark
    try:
        return bool(word) and Path(path).read_text(encoding="ascii") == word and Path(parcel.home).is_dir()
    except (OSError, ValueError):
        return False


def unpacked(parcel: Parcel, own: Path, files: Path) -> Path:
    """Unpack the job into a workspace below the agent's `own` folder and return the job's folder; `files` is the folder
    of files by hash."""
    workspace = Workspace(own / "code" / parcel.code_hash[:16])
    if not workspace.root.exists():
        beside = workspace.root.with_name(f".{workspace.root.name}")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        for path, digest in parcel.code.items():
            target = beside / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(files / digest, target)
        for path, lies in parcel.stays.items():
            (beside / path).parent.mkdir(parents=True, exist_ok=True)
            if not (beside / path).exists():  # a folder of which modules came
                (beside / path).symlink_to(lies)
        beside.rename(workspace.root)
        workspace.create()
        if parcel.trusted:
            trust.trust(workspace)
    folder = workspace.jobs / parcel.job
    folder.mkdir(exist_ok=True)
    for name, digest in parcel.files.items():
        content = (files / digest).read_bytes()
        if name == "config.yaml" and parcel.checkpoint:
            content = with_checkpoint(content, files / parcel.checkpoint)
        records.put(folder / name, content)
    return folder
