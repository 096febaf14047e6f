"""One job at a time on a checkpoint: who has it says so beside it, again and again.

Two jobs on one checkpoint would write one state from two heads; Spark notices only when they meet
in its log, after the damage. The second job does not start, and names the first. A job that was
left behind (it was stopped and woke up again) finds its lease taken, and ends.

No clock of another machine is trusted: a lease is given up when it has stood unchanged for
LEASE_SECONDS while one watched. On the same machine the dead are told from the living at once.
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
from typing import Any, Protocol

import psutil
import structlog

from job.errors import CheckpointError, CheckpointInUseError

RENEWAL_SECONDS = 2.0
LEASE_SECONDS = 6.0
LEASE = "lease.json"
_POLL_SECONDS = 0.2

_log = structlog.get_logger()


class Documents(Protocol):
    """The files beside a checkpoint."""

    @property
    def root(self) -> str: ...

    def read(self, name: str) -> Mapping[str, Any] | None: ...

    def write(self, name: str, document: Mapping[str, Any]) -> None: ...

    def remove(self, name: str) -> None: ...


class Lease:
    """`take` it before anything is written, `release` it when the last batch has ended."""

    def __init__(self, documents: Documents, lost: Callable[[], None]) -> None:
        """`lost` is called on another thread: another job has the lease, or the lease is gone."""
        self._documents = documents
        self._lost = lost
        self._identity = _identity()
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self.loss: CheckpointInUseError | CheckpointError | None = None
        """Why the lease is lost; None: it is not."""

    def take(self) -> None:
        """Raises CheckpointInUseError where a living job has it."""
        found = self._documents.read(LEASE)
        if found is not None and not _is_dead(found):
            self._watch(found)
        self._write()
        # Of two jobs that found it free at the same time the one that wrote last has it.
        time.sleep(_POLL_SECONDS)
        found = self._documents.read(LEASE)
        if not self._is_mine(found):
            raise self._in_use(found or {})
        self._thread.start()

    def release(self) -> None:
        """Harmless when it is lost or was never taken."""
        self._released.set()
        if self._thread.is_alive():
            self._thread.join()
        with suppress(Exception):  # the file system may be what went away; the lease runs out
            if self._is_mine(self._documents.read(LEASE)):
                self._documents.remove(LEASE)

    def _watch(self, found: Mapping[str, Any]) -> None:
        """Until the lease has stood still for LEASE_SECONDS."""
        _log.info("lease_watched", holder=_told(found), for_seconds=LEASE_SECONDS)
        deadline = time.monotonic() + LEASE_SECONDS
        while time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            now = self._documents.read(LEASE)
            if now is None:
                return
            if now != found:
                raise self._in_use(now)

    def _in_use(self, found: Mapping[str, Any]) -> CheckpointInUseError:
        return CheckpointInUseError(
            f"the checkpoint {self._documents.root} is in use by {_told(found)}: two jobs on one "
            "checkpoint would spoil it. End the other one, or name another folder in `checkpoint` "
            "(and another `name`) here"
        )

    def _keep(self) -> None:
        while not self._released.wait(RENEWAL_SECONDS):
            try:
                found = self._documents.read(LEASE)
                if self._is_mine(found):
                    self._write()
                    continue
            except Exception as error:
                # Not lost yet. When writing fails for good, the query fails by itself.
                _log.warning("lease_not_renewed", reason=" ".join(str(error).split("\n")[:2]))
                continue
            self.loss = self._taken_by(found) if found else self._deleted()
            self._lost()
            return

    def _taken_by(self, found: Mapping[str, Any]) -> CheckpointInUseError:
        return CheckpointInUseError(
            f"the checkpoint {self._documents.root} was taken over by {_told(found)} while this "
            "job did not answer: it ends here"
        )

    def _deleted(self) -> CheckpointError:
        return CheckpointError(
            f"the checkpoint {self._documents.root} was deleted or moved while this job ran: the "
            "job ends. Put the folder back, or restore a backup with `streamjoin checkpoint "
            "restore`, and start the job again; with an empty folder the join begins without state"
        )

    def _write(self) -> None:
        renewed = {"renewed_at": datetime.now(UTC).isoformat(timespec="milliseconds")}
        self._documents.write(LEASE, {**self._identity, **renewed})

    def _is_mine(self, found: Mapping[str, Any] | None) -> bool:
        return found is not None and found.get("id") == self._identity["id"]


def _identity() -> dict[str, Any]:
    return {
        "id": str(uuid.uuid4()),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": psutil.Process().create_time(),
        "machine": _machine(),
    }


def _machine() -> str:
    """Names the boot of the kernel and the space in which process ids count: a container's is its
    own."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"


def _is_dead(found: Mapping[str, Any]) -> bool:
    """Known only of a process whose id can be looked up from here; this one's earlier lease is."""
    if found.get("machine") != _machine():
        return False
    if found["pid"] == os.getpid():
        return True
    try:
        return bool(psutil.Process(found["pid"]).create_time() != found["started"])
    except psutil.NoSuchProcess:
        return True


def _told(found: Mapping[str, Any]) -> str:
    return (
        f"the job with process {found.get('pid')} on {found.get('host')} "
        f"(last heard of at {found.get('renewed_at')})"
    )
