"""The documents in a checkpoint."""

import json
from pathlib import Path
from typing import Any

import pytest

from job.change.files import RequestedChange
from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.documents import (
    DesiredState,
    ExactlyOnce,
    Fence,
    Fingerprint,
    Replaces,
    SkippedRecords,
    Starts,
    Topics,
    read_document,
    write_document,
)
from job.checkpoint.lease import LeaseHolder
from job.checkpoint.maintenance import Manifest
from job.checkpoint.reset import PendingReset
from job.checkpoint.successor import Changed
from job.document import Document
from job.errors import CheckpointError
from job.event_time.interval import Interval
from job.event_time.partitions import RecordedEventTimes
from job.plan.fingerprint import changes, fingerprint, recorded_plan
from job.plan.planner import join_plan
from job.replay.replay import Replay
from job.spec.engine import Engine
from job.spec.spec import spec_from_yaml
from tests.sql_worker import SQL
from tests.unit.checkpoint.folders import DocumentFolder

GOLDEN = Path(__file__).parents[2] / "golden" / "checkpoint"
DOCUMENTS = GOLDEN.parent / "documents"


def checkpoint_with(**documents: Any) -> Checkpoint:
    made = object.__new__(Checkpoint)
    made.folder = DocumentFolder(  # type: ignore[assignment]
        {f"{name}.json": document for name, document in documents.items()}
    )
    return made


def test_written_document_has_a_format_and_is_read_again() -> None:
    folder = DocumentFolder()
    write_document(folder, Fence(number=3))

    assert {"fence.json": {"format": 1, "number": 3}} == folder.documents
    assert Fence(number=3) == read_document(folder, Fence)
    assert read_document(folder, Topics) is None


NEWER = "start the version of Streamjoin that wrote it, or a newer one"
ANOTHER_FORMAT = f"has format 2, and this version reads format 1: {NEWER}"
REPAIR = "Restore a backup (`streamjoin checkpoint restore`), or reset"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {"format": 2, "id": 3},
            ANOTHER_FORMAT,
        ),
        ({"number": 3}, f"is damaged: `format` is required. {REPAIR}"),
        ([], f"is damaged: Input should be an object. {REPAIR}"),
        ({"format": 1}, f"is damaged: `number`: Field required. {REPAIR}"),
        (
            {"format": 1, "number": 3, "since": 1},
            f"has the field `since`, which this version does not know: {NEWER}",
        ),
        (
            {"format": 1, "number": "3"},
            f"is damaged: `number`: Input should be a valid integer. {REPAIR}",
        ),
    ],
)
def test_document_that_cannot_be_read_is_refused_with_the_remedy(
    document: Any, message: str
) -> None:
    with pytest.raises(CheckpointError) as refusal:
        read_document(DocumentFolder({"fence.json": document}), Fence)

    assert f"fence.json in file:/checkpoint {message}" == str(refusal.value)


def test_document_that_is_no_json_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = DocumentFolder()
    monkeypatch.setattr(folder, "text", lambda _: '{"format": 1, "num')

    with pytest.raises(CheckpointError, match=r"fence\.json in .* is damaged: Invalid JSON"):
        read_document(folder, Fence)


@pytest.mark.parametrize("missing", ["late_unknown_before", "expired"])
def test_document_without_a_field_is_damaged(missing: str) -> None:
    recorded = json.loads((DOCUMENTS / "change.json").read_text())
    del recorded[missing]

    with pytest.raises(CheckpointError, match=f"is damaged: `{missing}` is required"):
        read_document(DocumentFolder({"change.json": recorded}), Replay)


def test_offsets_of_one_side_are_damage() -> None:
    recorded = json.loads((DOCUMENTS / "change.json").read_text())
    del recorded["ends"]["right"]

    with pytest.raises(CheckpointError, match=r"`ends`: .*no offsets of the right side"):
        read_document(DocumentFolder({"change.json": recorded}), Replay)


def test_interval_is_refused_if_a_newer_version_has_written_it() -> None:
    checkpoint = checkpoint_with(interval={"format": 2, "batch": 7})

    with pytest.raises(CheckpointError, match=r"interval\.json .* has format 2"):
        _ = checkpoint.recorded_interval


@pytest.mark.parametrize(
    "document",
    [
        {"format": 2, "left": {"0": "unknown"}},
        {"format": 1, "left": [], "right": None},
        {"format": 1, "left": {"0": 5}, "right": {"0": {"offset": 3}}},
        {"format": 1, "left": {"0": {"offset": "5", "event_time_ms": 7}}},
    ],
)
def test_event_times_that_cannot_be_read_are_unknown(document: Any) -> None:
    assert RecordedEventTimes() == checkpoint_with(event_times=document).event_times


def test_released_name_is_written_as_null_and_a_name_that_was_never_owned_is_left_out() -> None:
    for document, fields in (
        (ExactlyOnce(since=3), {}),
        (ExactlyOnce(since=3, owner=None), {"owner": None}),
        (ExactlyOnce(since=3, owner="4711"), {"owner": "4711"}),
    ):
        folder = DocumentFolder()
        write_document(folder, document)

        assert {"format": 1, "since": 3, **fields} == folder.documents["exactly_once.json"]
        assert document == read_document(folder, ExactlyOnce)


@pytest.mark.parametrize(
    "kind", [Fingerprint, Topics, ExactlyOnce, RecordedEventTimes, DesiredState, Interval]
)
def test_recorded_document_is_read_and_written_as_it_is(kind: type[Document]) -> None:
    recorded = (GOLDEN / "real_time" / "files" / kind.file_name).read_text()

    assert recorded == kind.model_validate_json(recorded).model_dump_json(indent=2)


@pytest.mark.parametrize(
    "kind",
    [
        *(Changed, Fence, LeaseHolder, Manifest, PendingReset, Replaces, Replay, RequestedChange),
        *(SkippedRecords, Starts),
    ],
)
def test_each_field_of_a_document_that_an_earlier_commit_wrote_is_kept(
    kind: type[Document],
) -> None:
    recorded = json.loads((DOCUMENTS / kind.file_name).read_text())
    folder = DocumentFolder({kind.file_name: recorded})
    document = read_document(folder, kind)
    assert document is not None
    write_document(folder, document)

    written = folder.documents[kind.file_name]
    assert recorded == {name: written[name] for name in recorded}


@pytest.mark.parametrize("engine", list(Engine))
def test_recorded_fingerprint_is_that_of_its_spec(engine: Engine) -> None:
    folder = GOLDEN / engine
    document = json.loads((folder / "files" / "fingerprint.json").read_text())
    variables = {"RECORDED_SERVERS": "localhost:9092", "RECORDED_CHECKPOINT": "unused"}
    spec = spec_from_yaml((folder / "join.yaml").read_text(), variables)
    settings = document["settings"]
    plan = recorded_plan(join_plan(spec, SQL, state_partitions=2), settings)

    assert 1 == document["format"]
    assert [] == changes(settings, fingerprint(plan))
