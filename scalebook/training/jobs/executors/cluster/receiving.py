"""On the machine that gets a job: its folder, with its config, its checkpoint, and exactly the code that was sent."""

import shutil
from pathlib import Path

from scalebook.training.files import records
from scalebook.training.jobs.executors.cluster.sending import Parcel, with_checkpoint
from scalebook.training.trust import trust
from scalebook.training.workspace import Workspace


def is_shared(parcel: Parcel) -> bool:
    """Whether this machine sees the workspace's own folder."""
    path, word = parcel.mark
    try:
        return bool(word) and Path(path).read_text(encoding="ascii") == word and Path(parcel.home).is_dir()
    except (OSError, ValueError):
        return False


def unpacked(parcel: Parcel, own: Path, files: Path) -> Path:
    """The job's folder, in a workspace below the agent's `own` folder; `files` lie by their hash."""
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
            trust(workspace)
    folder = workspace.jobs / parcel.job
    folder.mkdir(exist_ok=True)
    for name, digest in parcel.files.items():
        content = (files / digest).read_bytes()
        if name == "config.yaml" and parcel.checkpoint:
            content = with_checkpoint(content, files / parcel.checkpoint)
        records.put(folder / name, content)
    return folder
