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
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import structlog

from job.checkpoint.documents import FINGERPRINT, Documents, write_document
from job.errors import CheckpointError, CheckpointInUseError
from job.waiting import wait_until

RENEWAL_SECONDS = 2.0
LEASE_SECONDS = 6.0
LEASE = "lease.json"
_POLL_SECONDS = 0.2
TWO_JOBS = (
    "two jobs on one checkpoint would corrupt it. End the other one, or set another `checkpoint` "
    "and another `name` in this spec"
)

_log = structlog.get_logger()


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
        self._identity = _identity()
        self._replaced: str | None = None
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self.loss: CheckpointInUseError | CheckpointError | None = None
        """Why the lease is lost. None: it is not lost."""

    def take(self) -> None:
        """Raises CheckpointInUseError if a running job has the lease."""
        holder = self._documents.read(LEASE)
        if holder is not None and not _is_dead(holder):
            self._watch(holder)
        self._replaced = None if holder is None else holder.get("id")
        self._write()
        # If two jobs found the lease free at the same time, the last writer has it.
        time.sleep(_POLL_SECONDS)
        lease = self._documents.read(LEASE)
        if not self._is_mine(lease):
            raise self._in_use(lease or {})
        self._thread.start()

    def release(self) -> None:
        """Harmless if the lease is lost or was never taken."""
        self._released.set()
        if self._thread.is_alive():
            self._thread.join()
        with suppress(Exception):  # the file system may be unreachable; then the lease expires
            if self._is_mine(self._documents.read(LEASE)):
                self._documents.remove(LEASE)

    def _watch(self, holder: Mapping[str, Any]) -> None:
        """Wait until the lease has expired. Raises CheckpointInUseError if it is renewed."""
        _log.info("lease_watched", holder=_describe_holder(holder), for_seconds=LEASE_SECONDS)

        def was_removed() -> bool:
            now = self._documents.read(LEASE)
            if now is not None and now != holder:
                raise self._in_use(now)
            return now is None

        wait_until(was_removed, LEASE_SECONDS, _POLL_SECONDS)

    def _in_use(self, holder: Mapping[str, Any]) -> CheckpointInUseError:
        return CheckpointInUseError(
            f"the checkpoint {self._documents.root} is in use by "
            f"{_describe_holder(holder)}: {self._remedy}"
        )

    def _renew(self) -> None:
        while not self._released.wait(RENEWAL_SECONDS):
            try:
                lease = self._documents.read(LEASE)
                if self._is_mine(lease) or self._is_replaced(lease):
                    self._write()
                    continue
                exists = lease is not None or self._documents.read(FINGERPRINT) is not None
            except Exception as error:
                # Not lost yet. If writes keep failing, the query itself fails.
                _log.warning("lease_not_renewed", reason=" ".join(str(error).split("\n")[:2]))
                continue
            self.loss = self._taken_by(lease) if exists else self._deleted()
            self._lost()
            return

    def _taken_by(self, holder: Mapping[str, Any] | None) -> CheckpointInUseError:
        """`holder`: None if it has released the lease."""
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
        renewed = {"renewed_at": datetime.now(UTC).isoformat(timespec="milliseconds")}
        write_document(self._documents, LEASE, {**self._identity, **renewed})

    def _is_replaced(self, lease: Mapping[str, Any] | None) -> bool:
        """Whether the job that this one has replaced has written the lease: it was suspended while
        it renewed its lease. It ends once it reads that another job has the lease."""
        return lease is not None and self._replaced is not None and lease["id"] == self._replaced

    def _is_mine(self, lease: Mapping[str, Any] | None) -> bool:
        return lease is not None and lease.get("id") == self._identity["id"]


def _identity() -> dict[str, Any]:
    return {
        "id": str(uuid.uuid4()),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": psutil.Process().create_time(),
        "machine": _machine(),
    }


def _machine() -> str:
    """Identifies the boot of the kernel and the PID namespace. Each container has its own."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"


def _is_dead(lease: Mapping[str, Any]) -> bool:
    """Whether the holder is known to be dead, which only a job on the same machine can detect.

    An earlier lease of this process counts as dead.
    """
    if lease.get("machine") != _machine():
        return False
    if lease["pid"] == os.getpid():
        return True
    try:
        return bool(psutil.Process(lease["pid"]).create_time() != lease["started"])
    except psutil.NoSuchProcess:
        return True


def _describe_holder(lease: Mapping[str, Any]) -> str:
    return (
        f"the job with process {lease.get('pid')} on {lease.get('host')} "
        f"(last renewal at {lease.get('renewed_at')})"
    )
