"""Who may use a checkpoint: told from what stands beside it."""

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from job.checkpoint import lease
from job.checkpoint.lease import LEASE, Lease
from job.errors import CheckpointError, CheckpointInUseError
from tests.polling import wait_until


class Beside:
    """The files beside a checkpoint, in memory."""

    root = "file:/checkpoint"

    def __init__(self) -> None:
        self.documents: dict[str, Mapping[str, Any]] = {}

    def read(self, name: str) -> Mapping[str, Any] | None:
        return self.documents.get(name)

    def write(self, name: str, document: Mapping[str, Any]) -> None:
        self.documents[name] = document

    def remove(self, name: str) -> None:
        self.documents.pop(name, None)


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> Beside:
    """Leases renewed and given up a hundred times as fast."""
    monkeypatch.setattr(lease, "RENEWAL_SECONDS", 0.02)
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.2)
    monkeypatch.setattr(lease, "_POLL_SECONDS", 0.005)
    return Beside()


def foreign(**changes: Any) -> dict[str, Any]:
    """The lease of a job on another machine."""
    return {
        "id": "theirs",
        "host": "other",
        "pid": 7,
        "started": 1.0,
        "machine": "elsewhere",
        "renewed_at": "2026-11-20T12:00:00.000+00:00",
        **changes,
    }


def taken(beside: Beside, lost: threading.Event | None = None) -> Lease:
    made = Lease(beside, lost=(lost or threading.Event()).set)
    made.take()
    return made


def test_free_checkpoint_is_taken_and_given_back(beside: Beside) -> None:
    mine = taken(beside)
    assert LEASE in beside.documents

    mine.release()
    assert {} == beside.documents


def test_lease_that_is_renewed_by_another_job_is_not_taken_and_the_job_is_named(
    beside: Beside,
) -> None:
    beside.documents[LEASE] = foreign()
    ended = threading.Event()

    def renew() -> None:
        number = 0
        while not ended.wait(0.01):
            number += 1
            beside.documents[LEASE] = foreign(renewed_at=f"later {number}")

    renewing = threading.Thread(target=renew)
    renewing.start()
    try:
        with pytest.raises(CheckpointInUseError, match="process 7 on other"):
            taken(beside)
    finally:
        ended.set()
        renewing.join()
    assert "theirs" == beside.documents[LEASE]["id"]


def test_of_two_jobs_that_found_it_free_the_one_that_wrote_last_has_it(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = beside.write

    def write_and_be_overwritten(name: str, document: Mapping[str, Any]) -> None:
        write(name, document)
        write(name, foreign())

    monkeypatch.setattr(beside, "write", write_and_be_overwritten)
    with pytest.raises(CheckpointInUseError, match="process 7 on other"):
        taken(beside)


def test_lease_that_stands_still_is_taken_over(beside: Beside) -> None:
    beside.documents[LEASE] = foreign()

    mine = taken(beside)
    assert "theirs" != beside.documents[LEASE]["id"]
    mine.release()


def test_lease_of_a_process_of_this_machine_that_is_gone_is_taken_at_once(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = taken(beside)
    first.release()
    monkeypatch.setattr(lease, "LEASE_SECONDS", 3600.0)  # watching it would never end
    gone = {**first._identity, "pid": 2**22 - 1, "renewed_at": "long ago"}
    beside.documents[LEASE] = gone

    taken(beside).release()


def test_job_that_was_left_behind_learns_that_its_lease_is_taken(beside: Beside) -> None:
    lost = threading.Event()
    mine = taken(beside, lost)
    beside.documents[LEASE] = foreign()

    assert lost.wait(10)
    assert mine.loss is not None
    assert "process 7 on other" in str(mine.loss)
    mine.release()
    assert "theirs" == beside.documents[LEASE]["id"]


def test_job_whose_checkpoint_is_deleted_says_so(beside: Beside) -> None:
    lost = threading.Event()
    mine = taken(beside, lost)
    beside.documents.clear()

    assert lost.wait(10)
    assert isinstance(mine.loss, CheckpointError)
    assert "was deleted or moved while this job ran" in str(mine.loss)
    assert "None" not in str(mine.loss)
    mine.release()


def test_lease_survives_a_file_system_that_fails_for_a_while(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = taken(beside)
    failures: list[str] = []

    def fail(name: str) -> Mapping[str, Any] | None:
        failures.append(name)
        raise OSError("no file system")

    with monkeypatch.context() as broken:
        broken.setattr(beside, "read", fail)
        wait_until(lambda: len(failures) > 1, 10, "renewing has failed twice")
    before = beside.documents[LEASE]
    wait_until(lambda: beside.documents[LEASE] != before, 10, "it is renewed again")
    assert mine.loss is None
    mine.release()
