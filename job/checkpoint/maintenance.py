"""Repair, backup and restore of a checkpoint that no job uses. The caller has its lease."""

import json
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from job.checkpoint.checkpoint import ASIDE, Checkpoint, aside_folder, move_log_entry
from job.checkpoint.documents import ExactlyOnce, read_document, write_document
from job.checkpoint.folder import Folder
from job.checkpoint.lease import LeaseHolder
from job.checkpoint.log_check import Entry, Findings, findings
from job.document import Document
from job.errors import CheckpointError

# A late task of an earlier job may still write.
_TEMPORARY_AGE = timedelta(hours=1)


class Manifest(Document):
    """The content of a backup. Written last."""

    file_name = "backup.json"
    if_damaged = "Use another backup"
    made_at: str
    query_id: str
    batch_id: int | None
    files: dict[str, int]
    """Bytes by relative path."""


_OF_ONE_FOLDER = {LeaseHolder.file_name, Manifest.file_name}


@dataclass(frozen=True)
class Backup:
    location: str
    batch_id: int | None
    """The last batch that had ended. None: no batch had ended."""
    files: int
    bytes: int


def check_logs(folder: Folder) -> Findings:
    return findings(_entries(folder, "offsets"), _entries(folder, "commits"))


def repair_logs(folder: Folder, now: datetime) -> list[str]:
    """Move the newest log entry aside if a power failure left it empty. Returns the moved files.

    Raises CheckpointError if an acknowledged entry is damaged: nothing is moved then.
    """
    logs = check_logs(folder)
    if logs.damage:
        raise CheckpointError(
            f"the checkpoint {folder.root} is damaged and cannot be repaired: "
            + "; ".join(logs.damage)
            + ". Restore a backup (`streamjoin checkpoint restore`), or reset"
        )
    aside = aside_folder(now)
    for name in logs.repairable:
        log, number = name.split("/")
        move_log_entry(folder, log, int(number), aside)
    if "offsets/0" in logs.repairable and folder.exists("query/state"):
        # No batch has ended, so this state belongs to no batch. Spark requires an empty
        # state before batch 0.
        folder.move("query/state", f"{aside}/state")
    return [f"query/{name}" for name in logs.repairable]


def remove_temporary_files(folder: Folder, now: datetime) -> list[str]:
    """Remove the temporary files that killed jobs have left, for example those of changelogs.
    Returns their names.

    Only in local folders. Object stores have none, and a list of all files of a distributed file
    system takes too long for a start.
    """
    if folder.scheme != "file":
        return []
    root, removed = Path(folder.root.removeprefix("file:")), []
    oldest = (now - _TEMPORARY_AGE).timestamp()
    for pattern in ("*.tmp", "*.tmp.crc"):
        for file in root.rglob(pattern):
            with suppress(OSError):  # removed meanwhile, or of another user: it is only left over
                if file.name.startswith(".") and file.is_file() and file.stat().st_mtime < oldest:
                    file.unlink()
                    removed.append(str(file.relative_to(root)))
    return sorted(removed)


def create_backup(folder: Folder, target: Folder, checkpoint: Checkpoint, now: datetime) -> Backup:
    """Copy all files that a restart needs to the empty folder `target`, and check the copy."""
    if target.names():
        raise CheckpointError(f"{target.root} is not empty: use a new folder")
    if not folder.exists("query"):
        raise CheckpointError(
            f"{folder.root} contains no checkpoint: check `checkpoint` in the spec"
        )
    names = list(_to_back_up(folder))
    for name in names:
        folder.copy_to(name, target, name)
    copied, original = _sizes(target), _sizes(folder)
    if copied != original:
        raise CheckpointError(f"the copy in {target.root} differs from {folder.root}: try again")
    batch_id = checkpoint.last_batch_id
    manifest = Manifest(
        made_at=now.isoformat(timespec="seconds"),
        query_id=checkpoint.query_id,
        batch_id=batch_id,
        files=copied,
    )
    write_document(target, manifest)
    return Backup(target.root, batch_id, len(copied), sum(copied.values()))


def restore_backup(
    source: Folder, folder: Folder, checkpoint: Checkpoint, now: datetime, *, results_again: bool
) -> Backup:
    """Replace the checkpoint with the backup `source`; the present files are moved aside.

    `results_again`: the query gets a new id, so that results of later batches are delivered again.
    Otherwise exactly-once delivery refuses to continue from an older copy.
    """
    manifest = read_document(source, Manifest)
    if manifest is None:
        raise CheckpointError(
            f"{source.root} is not a backup, because it has no {Manifest.file_name}: restore a "
            "folder that `streamjoin checkpoint backup` has written"
        )
    files = manifest.files
    present = source.sizes()
    wrong = [name for name, size in files.items() if present.get(name) != size]
    if wrong:
        raise CheckpointError(
            f"the backup {source.root} is damaged: missing or of another size: "
            f"{', '.join(wrong[:5])}. Restore another backup"
        )
    aside = aside_folder(now)
    for name in list(_to_back_up(folder)):
        folder.move(name, f"{aside}/{name}")
    for name in sorted({name.split("/")[0] for name in files}):
        source.copy_to(name, folder, name)
    if results_again:
        folder.write("query/metadata", json.dumps({"id": str(uuid.uuid4())}))
        folder.remove(ExactlyOnce.file_name)
        checkpoint.allow_replacing_any_query()
    return Backup(source.root, manifest.batch_id, len(files), sum(files.values()))


def _to_back_up(folder: Folder) -> Iterator[str]:
    for name in folder.names():
        if not name.startswith((".", ASIDE)) and name not in _OF_ONE_FOLDER:
            yield name


def _sizes(folder: Folder) -> dict[str, int]:
    """Bytes of each file of a backup, without the checksum files of the local file system."""
    kept = set(_to_back_up(folder))
    return {
        name: size
        for name, size in folder.sizes().items()
        if name.split("/")[0] in kept and not name.split("/")[-1].startswith(".")
    }


def _entries(folder: Folder, log: str) -> list[Entry]:
    return [
        Entry(int(name), size)
        for name, size in folder.sizes(f"query/{log}").items()
        if name.isdecimal()
    ]
