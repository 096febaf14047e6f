"""A lease on the checkpoint, which its job renews: one job at a time uses a checkpoint.

Two jobs on one checkpoint would corrupt its state; Spark notices only when they write the same log
entry, after the damage. The second job does not start, and names the first. A zombie job (for
example after a VM pause) finds that another job has the lease, and ends.

Clocks of other machines are not trusted: a lease expires when it has not changed for LEASE_SECONDS
while a job watched it. On the same machine a dead holder is detected at once.
"""

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import psutil
import structlog

from job.checkpoint.documents import Documents, Fingerprint, read_document, write_document
from job.document import Document
from job.errors import CheckpointError, CheckpointInUseError
from job.waiting import wait_until

RENEWAL_SECONDS = 2.0
LEASE_SECONDS = 6.0
_POLL_SECONDS = 0.2
TWO_JOBS = (
    "two jobs on one checkpoint would corrupt it. End the other one, or set another `checkpoint` "
    "and another `name` in this spec"
)

_log = structlog.get_logger()


class LeaseHolder(Document):
    """The job that has the lease."""

    file_name = "lease.json"
    if_damaged = "Check that no other job runs on this checkpoint, then delete the file"
    id: str
    host: str
    pid: int
    started: float
    """Start of the process, seconds since 1970."""
    machine: str
    renewed_at: str


class Lease:
    """`take` it before the first write, `release` it after the last batch."""

    def __init__(
        self, documents: Documents, lost: Callable[[], None], remedy: str = TWO_JOBS
    ) -> None:
        """`lost` is called on another thread if another job has taken the lease, or the lease was
        deleted. `remedy`: for a user who cannot take it."""
        self._documents = documents
        self._lost = lost
        self._remedy = remedy
        self._this_job = _this_job()
        self._replaced: str | None = None
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self.loss: CheckpointInUseError | CheckpointError | None = None
        """Why the lease is lost. None: it is not lost."""

    def take(self) -> None:
        """Raises CheckpointInUseError if a running job has the lease."""
        holder = self._read()
        if holder is not None and not _is_dead(holder):
            self._watch(holder)
        self._replaced = None if holder is None else holder.id
        self._write()
        # If two jobs found the lease free at the same time, the last writer has it.
        time.sleep(_POLL_SECONDS)
        holder = self._read()
        if holder is None:
            raise CheckpointInUseError(
                f"the lease of the checkpoint {self._documents.root} was removed by another job: "
                f"{self._remedy}"
            )
        if not self._is_mine(holder):
            raise self._in_use(holder)
        self._thread.start()

    def release(self) -> None:
        """Harmless if the lease is lost or was never taken."""
        self._released.set()
        if self._thread.is_alive():
            self._thread.join()
        with suppress(Exception):  # the file system may be unreachable; then the lease expires
            if self._is_mine(self._read()):
                self._documents.remove(LeaseHolder.file_name)

    def _read(self) -> LeaseHolder | None:
        return read_document(self._documents, LeaseHolder)

    def _watch(self, holder: LeaseHolder) -> None:
        """Wait until the lease has expired. Raises CheckpointInUseError if it is renewed."""
        _log.info("lease_watched", holder=_describe_holder(holder), for_seconds=LEASE_SECONDS)

        def was_removed() -> bool:
            now = self._read()
            if now is not None and now != holder:
                raise self._in_use(now)
            return now is None

        wait_until(was_removed, LEASE_SECONDS, _POLL_SECONDS)

    def _in_use(self, holder: LeaseHolder) -> CheckpointInUseError:
        return CheckpointInUseError(
            f"the checkpoint {self._documents.root} is in use by "
            f"{_describe_holder(holder)}: {self._remedy}"
        )

    def _renew(self) -> None:
        while not self._released.wait(RENEWAL_SECONDS):
            try:
                holder = self._read()
                if self._is_mine(holder) or self._is_replaced(holder):
                    self._write()
                    continue
                exists = holder is not None or self._documents.text(Fingerprint.file_name)
            except CheckpointError as error:  # another version has the lease, or it is damaged
                self.loss = error
            except Exception as error:
                # Not lost yet. If writes keep failing, the query itself fails.
                _log.warning("lease_not_renewed", reason=" ".join(str(error).split("\n")[:2]))
                continue
            else:
                self.loss = self._taken_by(holder) if exists else self._deleted()
            self._lost()
            return

    def _taken_by(self, holder: LeaseHolder | None) -> CheckpointInUseError:
        by = "another job, which has ended," if holder is None else _describe_holder(holder)
        return CheckpointInUseError(
            f"the checkpoint {self._documents.root} was taken over by {by} while this job was "
            "suspended: this job ends"
        )

    def _deleted(self) -> CheckpointError:
        return CheckpointError(
            f"the checkpoint {self._documents.root} was deleted or moved while this job ran: the "
            "job ends. Move the folder back to this path, or restore a backup with "
            "`streamjoin checkpoint restore`, and start the job again; with an empty folder the "
            "join starts without state"
        )

    def _write(self) -> None:
        renewed = self._this_job.model_copy(update={"renewed_at": _now()})
        write_document(self._documents, renewed)

    def _is_replaced(self, holder: LeaseHolder | None) -> bool:
        """Whether the job that this one has replaced has written the lease: it was suspended while
        it renewed its lease. It ends once it reads that another job has the lease."""
        return holder is not None and holder.id == self._replaced

    def _is_mine(self, holder: LeaseHolder | None) -> bool:
        return holder is not None and holder.id == self._this_job.id


def _this_job() -> LeaseHolder:
    return LeaseHolder(
        id=str(uuid.uuid4()),
        host=socket.gethostname(),
        pid=os.getpid(),
        started=psutil.Process().create_time(),
        machine=_machine(),
        renewed_at=_now(),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _machine() -> str:
    """Identifies the boot of the kernel and the PID namespace. Each container has its own."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"


def _is_dead(holder: LeaseHolder) -> bool:
    """Whether the holder is known to be dead, which only a job on the same machine can detect.

    An earlier lease of this process counts as dead.
    """
    if holder.machine != _machine():
        return False
    if holder.pid == os.getpid():
        return True
    try:
        return bool(psutil.Process(holder.pid).create_time() != holder.started)
    except psutil.NoSuchProcess:
        return True


def _describe_holder(holder: LeaseHolder) -> str:
    return (
        f"the job with process {holder.pid} on {holder.host} (last renewal at {holder.renewed_at})"
    )
