"""A table that may lack deletions is read again, by a change that the job makes itself."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from job.change import table_reload
from job.change.request import BY_JOB, ChangeRequest
from job.change.sent_spec import WrittenSpec
from job.change.table_reload import spec_of_reload
from job.kafka import tombstones
from job.kafka.tombstones import topics_with_lost_tombstones
from job.kafka.topic_settings import TopicSettings
from job.settings import JobSettings
from job.spec.source_topics import SourceTopics
from job.spec.spec import spec_from_yaml
from tests.unit.change.requested_changes import changes_of
from tests.unit.specs import spec_yaml

COMPACTED = {"cleanup.policy": "compact", "delete.retention.ms": "1000"}
TABLE = {"right__table": "latest", "join": {"type": "inner"}}


@pytest.mark.parametrize(
    ("settings", "end", "unread_ms", "lost"),
    [
        (COMPACTED, 8, 1_001, True),
        (COMPACTED, 8, 1_000, False),
        (COMPACTED, 7, 1_001, False),  # Nothing was written since.
        ({**COMPACTED, "cleanup.policy": "compact,delete"}, 8, 1_001, True),
        ({**COMPACTED, "cleanup.policy": "delete"}, 8, 1_001, False),
        ({"cleanup.policy": "compact"}, 8, 86_400_000, False),
        ({"cleanup.policy": "compact"}, 8, 86_400_001, True),
    ],
)
def test_tombstones_are_lost_after_the_time_for_which_the_topic_keeps_them(
    monkeypatch: pytest.MonkeyPatch,
    settings: Mapping[str, str],
    end: int,
    unread_ms: int,
    lost: bool,
) -> None:
    kafka: Any = SimpleNamespace(raising_broker_error=lambda: _Client())
    monkeypatch.setattr(tombstones, "list_offsets_of_topics", lambda *_: {0: 5, 1: end})
    monkeypatch.setattr(tombstones, "read_settings", lambda _, name: TopicSettings(name, settings))
    topics = SourceTopics(("customers",))

    found = topics_with_lost_tombstones(kafka, topics, {0: 5, 1: 7}, unread_ms)

    assert (["customers"] if lost else []) == found


class _Client:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def test_spec_of_a_reload_differs_in_the_checkpoint_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COST", "7")
    text = spec_yaml(checkpoint="/data/ads-reload-2", left__filter="cost > ${COST}")
    used = {"/data/ads-reload-1", "/data/ads-reload-2"}

    written = spec_of_reload(
        WrittenSpec(text, spec_from_yaml(text, {"COST": "7"})), lambda folder: folder not in used
    )

    before = yaml.safe_load(text)
    assert {**before, "checkpoint": "/data/ads-reload-3"} == yaml.safe_load(written)


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> ChangeRequest:
    reason = "the query has not read customers since …"
    monkeypatch.setattr(table_reload, "reason_to_reload", lambda *_: reason)
    monkeypatch.setattr(table_reload, "Checkpoint", lambda *_: _checkpoint(has_begun=False))
    return changes_of(JobSettings(), monkeypatch, spec_yaml(**TABLE))


def _checkpoint(**fields: Any) -> Any:
    known = {"is_committed": True, "interrupted_interval": None, "fingerprint": None}
    folder = SimpleNamespace(spark=None)
    return SimpleNamespace(folder=folder, **{**known, **fields})


KAFKA: Any = None


def test_reload_comes_before_the_query_and_is_requested_once(change: ChangeRequest) -> None:
    assert change.reload_table(_checkpoint(), KAFKA)
    assert change.begin()

    assert change.report is not None
    assert BY_JOB == change.report.requested_by
    assert change.report.checkpoint is not None
    assert change.report.checkpoint.endswith("-reload-1")
    assert not change.reload_table(_checkpoint(), KAFKA)


def test_each_start_checks_the_table(
    change: ChangeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a long pause in the same process."""
    reasons = iter([None, "the query has not read customers since …"])
    monkeypatch.setattr(table_reload, "reason_to_reload", lambda *_: next(reasons))

    assert not change.reload_table(_checkpoint(), KAFKA)
    assert change.reload_table(_checkpoint(), KAFKA)


def test_reload_that_was_not_made_is_requested_by_the_next_process(
    change: ChangeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile the query has read the table: the time since the last reading is short."""
    monkeypatch.setattr(table_reload, "reason_to_reload", lambda *_: None)
    change._report.begin(BY_JOB, "/data/ads-reload-1")
    change._report.fail("the job ended before the change was made")

    assert change.reload_table(_checkpoint(), KAFKA)
    assert not change.reload_table(_checkpoint(), KAFKA)


@pytest.mark.parametrize("interrupted", [{"is_committed": False}, {"interrupted_interval": 7}])
def test_reload_waits_until_the_query_has_repeated_what_was_interrupted(
    change: ChangeRequest, interrupted: dict[str, Any]
) -> None:
    assert not change.reload_table(_checkpoint(**interrupted), KAFKA)

    assert change.is_waiting
    assert not change.begin()


def test_failed_reload_is_reported_and_the_query_runs(
    change: ChangeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no folder")

    monkeypatch.setattr(table_reload, "spec_of_reload", fail)

    assert not change.reload_table(_checkpoint(), KAFKA)
    assert not change.is_waiting
    assert change.report is not None
    assert "no folder" in str(change.report.error)


def test_versions_that_compaction_has_removed_stay_in_a_table_of_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_reload, "reason_to_reload", lambda *_: "…")
    text = spec_yaml(right__table="as_of", join={"type": "inner"})

    assert not changes_of(JobSettings(), monkeypatch, text).reload_table(_checkpoint(), KAFKA)
