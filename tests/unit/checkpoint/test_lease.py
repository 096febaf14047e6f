"""The lease of a checkpoint."""

import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from job.checkpoint import lease
from job.checkpoint.cli import CALL_THE_JOB, STOP_THE_QUERY, leased
from job.checkpoint.documents import Fingerprint
from job.checkpoint.lease import Lease, LeaseHolder
from job.errors import CheckpointError, CheckpointInUseError
from tests.polling import wait_until
from tests.unit.checkpoint.folders import DocumentFolder

LEASE = LeaseHolder.file_name


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> DocumentFolder:
    """Leases are renewed, and expire, a hundred times as fast."""
    monkeypatch.setattr(lease, "RENEWAL_SECONDS", 0.02)
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.2)
    monkeypatch.setattr(lease, "_POLL_SECONDS", 0.005)
    return DocumentFolder()


def foreign(**changes: Any) -> dict[str, Any]:
    """The lease of a job on another machine."""
    return {
        "format": 1,
        "id": "theirs",
        "host": "other",
        "pid": 7,
        "started": 1.0,
        "machine": "elsewhere",
        "renewed_at": "2026-11-20T12:00:00.000+00:00",
        **changes,
    }


def taken(folder: DocumentFolder, lost: threading.Event | None = None) -> Lease:
    made = Lease(folder, lost=(lost or threading.Event()).set)
    made.take()
    return made


def test_free_lease_is_taken_and_released(folder: DocumentFolder) -> None:
    mine = taken(folder)
    assert LEASE in folder.documents

    mine.release()
    assert {} == folder.documents


def test_job_keeps_its_lease_if_the_replaced_job_was_suspended_while_it_renewed_its_own(
    folder: DocumentFolder,
) -> None:
    folder.documents[LEASE] = foreign()
    lost = threading.Event()
    mine = taken(folder, lost)
    own = folder.documents[LEASE]["id"]
    folder.documents[LEASE] = foreign(renewed_at="2026-11-20T12:00:02.000+00:00")

    wait_until(lambda: own == folder.documents[LEASE]["id"], 10, "the lease is written again")
    assert not lost.is_set()
    folder.documents[LEASE] = foreign(id="of a third job")
    wait_until(lost.is_set, 10, "another job has taken the lease")
    mine.release()


def test_lease_that_is_renewed_by_another_job_is_not_taken_and_the_job_is_named(
    folder: DocumentFolder,
) -> None:
    folder.documents[LEASE] = foreign()
    ended = threading.Event()

    def renew() -> None:
        number = 0
        while not ended.wait(0.01):
            number += 1
            folder.documents[LEASE] = foreign(renewed_at=f"later {number}")

    renewing = threading.Thread(target=renew)
    renewing.start()
    try:
        with pytest.raises(CheckpointInUseError, match="process 7 on other"):
            taken(folder)
    finally:
        ended.set()
        renewing.join()
    assert "theirs" == folder.documents[LEASE]["id"]


def overwrite_each_document(folder: DocumentFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second job writes right after each write of this one."""
    write = folder.write

    def write_and_be_overwritten(name: str, text: str) -> None:
        write(name, text)
        write(name, json.dumps(foreign()))

    monkeypatch.setattr(folder, "write", write_and_be_overwritten)


@pytest.mark.parametrize(
    ("remedy", "text"),
    [
        (STOP_THE_QUERY, "with `streamjoin stop`"),
        (CALL_THE_JOB, "set STREAMJOIN_SOCKET to its socket"),
    ],
)
def test_command_reports_its_remedy_and_not_that_of_a_second_job(
    folder: DocumentFolder, monkeypatch: pytest.MonkeyPatch, remedy: str, text: str
) -> None:
    overwrite_each_document(folder, monkeypatch)
    checkpoint: Any = SimpleNamespace(folder=folder)
    with (
        pytest.raises(CheckpointInUseError, match=text) as refused,
        leased(checkpoint, remedy),
    ):
        pass
    assert "another `checkpoint`" not in str(refused.value)


def test_of_two_jobs_that_found_it_free_the_one_that_wrote_last_has_it(
    folder: DocumentFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    overwrite_each_document(folder, monkeypatch)
    with pytest.raises(CheckpointInUseError, match="process 7 on other"):
        taken(folder)


def test_lease_that_is_not_renewed_expires(folder: DocumentFolder) -> None:
    folder.documents[LEASE] = foreign()

    mine = taken(folder)
    assert "theirs" != folder.documents[LEASE]["id"]
    mine.release()


def test_lease_of_a_process_of_this_machine_that_is_gone_is_taken_at_once(
    folder: DocumentFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = taken(folder)
    first.release()
    monkeypatch.setattr(lease, "LEASE_SECONDS", 3600.0)  # watching it would never end
    gone = first._this_job.model_copy(update={"pid": 2**22 - 1, "renewed_at": "long ago"})
    folder.documents[LEASE] = gone.model_dump()

    taken(folder).release()


def test_zombie_job_loses_its_lease(folder: DocumentFolder) -> None:
    lost = threading.Event()
    mine = taken(folder, lost)
    folder.documents[LEASE] = foreign()

    assert lost.wait(10)
    assert mine.loss is not None
    assert "process 7 on other" in str(mine.loss)
    mine.release()
    assert "theirs" == folder.documents[LEASE]["id"]


def test_job_loses_its_lease_to_a_job_of_a_newer_version(folder: DocumentFolder) -> None:
    lost = threading.Event()
    mine = taken(folder, lost)
    newer = {"format": 2, "owner": "theirs"}
    folder.documents[LEASE] = newer

    assert lost.wait(10)
    assert "start the version of Streamjoin that wrote it" in str(mine.loss)
    mine.release()
    assert newer == folder.documents[LEASE]


def test_zombie_job_whose_successor_has_ended_names_no_deleted_folder(
    folder: DocumentFolder,
) -> None:
    folder.documents[Fingerprint.file_name] = {"format": 1, "settings": {}}
    lost = threading.Event()
    mine = taken(folder, lost)
    del folder.documents[LEASE]

    assert lost.wait(10)
    assert isinstance(mine.loss, CheckpointInUseError)
    assert "was taken over by another job, which has ended," in str(mine.loss)
    mine.release()


def test_job_whose_checkpoint_is_deleted_reports_it(folder: DocumentFolder) -> None:
    lost = threading.Event()
    mine = taken(folder, lost)
    folder.documents.clear()

    assert lost.wait(10)
    assert isinstance(mine.loss, CheckpointError)
    assert "was deleted or moved while this job ran" in str(mine.loss)
    assert "None" not in str(mine.loss)
    mine.release()


def test_lease_survives_a_file_system_that_fails_for_a_while(
    folder: DocumentFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = taken(folder)
    failures: list[str] = []

    def fail(name: str) -> str | None:
        failures.append(name)
        raise OSError("no file system")

    with monkeypatch.context() as broken:
        broken.setattr(folder, "text", fail)
        wait_until(lambda: len(failures) > 1, 10, "renewing has failed twice")
    before = folder.documents[LEASE]
    wait_until(lambda: folder.documents[LEASE] != before, 10, "it is renewed again")
    assert mine.loss is None
    mine.release()
