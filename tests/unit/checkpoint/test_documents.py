"""Format versions of the job's own files in a checkpoint."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.documents import read_document, write_document
from job.errors import CheckpointError
from job.event_time.interval import Interval
from job.join_spec.spec import spec_from_yaml
from job.plan.fingerprint import changes, fingerprint
from job.plan.planner import join_plan
from tests.sql_worker import SQL

GOLDEN = Path(__file__).parents[2] / "golden" / "checkpoint"


class Folder:
    root = "file:/checkpoint"

    def __init__(self, **documents: Mapping[str, Any]) -> None:
        self.documents: dict[str, Mapping[str, Any]] = dict(documents)

    def read(self, name: str) -> Mapping[str, Any] | None:
        return self.documents.get(name)

    def write(self, name: str, document: Mapping[str, Any]) -> None:
        self.documents[name] = document

    def remove(self, name: str) -> None:
        del self.documents[name]


def test_written_document_has_a_format_and_is_read_again() -> None:
    folder = Folder()
    write_document(folder, "a", {"since": 3})

    assert {"format": 1, "since": 3} == read_document(folder, "a")
    assert read_document(folder, "b") is None


ANOTHER = (
    "format 2, and this version reads format 1: start the version of Streamjoin that wrote it, or "
    "a newer one"
)
NONE = (
    "no format, so Streamjoin has not written it, or it is damaged: restore a backup of the "
    "checkpoint"
)


@pytest.mark.parametrize(("document", "message"), [({"format": 2}, ANOTHER), ({"since": 3}, NONE)])
def test_document_of_another_format_is_refused_with_the_remedy(
    document: dict[str, int], message: str
) -> None:
    with pytest.raises(CheckpointError) as refusal:
        read_document(Folder(a=document), "a")

    assert f"a in file:/checkpoint has {message}" == str(refusal.value)


def test_interval_is_refused_if_a_newer_version_has_written_it() -> None:
    checkpoint, folder = object.__new__(Checkpoint), Folder()
    checkpoint.folder = folder  # type: ignore[assignment]
    checkpoint.record_interval(Interval(7, 60_000))
    assert 1 == folder.documents["interval.json"]["format"]
    assert Interval(7, 60_000) == checkpoint.recorded_interval

    folder.write("interval.json", {"format": 2, "batch": 7})

    with pytest.raises(CheckpointError, match=r"interval\.json .* has format 2"):
        _ = checkpoint.recorded_interval


def test_recorded_fingerprint_is_that_of_its_spec() -> None:
    document = json.loads((GOLDEN / "files" / "fingerprint.json").read_text())
    variables = {"RECORDED_SERVERS": "localhost:9092", "RECORDED_CHECKPOINT": "unused"}
    spec = spec_from_yaml((GOLDEN / "join.yaml").read_text(), variables)
    plan = join_plan(spec, SQL, state_partitions=2)

    assert 1 == document["format"]
    assert [] == changes(document["settings"], fingerprint(plan))
