"""Starts that may replace the query that owns their name."""

from collections.abc import Collection
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from job.delivery import ownership
from job.delivery.commit_protocol import NO_BATCH, Marker, Step
from job.delivery.delivered import Delivered
from job.delivery.ownership import _replace_queries, _Writer
from job.delivery.slots import Target, slot_of
from job.errors import CheckpointError

UNUSED: Any = None
TARGET = Target(
    admin=UNUSED,
    client=(),
    name="joined",
    query_id="new",
    commit_topic="joined.commits",
    transaction_timeout_seconds=300,
)


@dataclass
class Checkpoint:
    last_batch_id: int | None = None
    replaced_queries: frozenset[str] = frozenset()
    may_replace_any_query: bool = False
    owns_name: bool = False

    def replace_queries(self, query_ids: Collection[str]) -> None:
        self.replaced_queries |= set(query_ids)
        self.may_replace_any_query = False


def replaced(
    checkpoint: Any, owners: set[str], *, since: int = 0, new_query: bool = False
) -> Collection[str]:
    return _replace_queries(TARGET, checkpoint, owners, set(), since=since, new_query=new_query)


def test_name_without_a_query_or_with_this_one_is_taken() -> None:
    assert set() == replaced(Checkpoint(), set())
    assert set() == replaced(Checkpoint(last_batch_id=7), {"new"})


def test_second_query_of_a_name_is_refused_and_the_flag_is_named() -> None:
    with pytest.raises(CheckpointError) as refusal:
        replaced(Checkpoint(), {"old"})
    for text in ("joined.commits contains markers of query old", "--new-query", "another `name`"):
        assert text in str(refusal.value)


def test_consent_is_for_the_queries_found_now_and_is_kept() -> None:
    checkpoint = Checkpoint()
    assert {"old"} == replaced(checkpoint, {"old"}, new_query=True)
    assert {"old"} == replaced(checkpoint, {"old", "new"})  # cut short among the slots
    with pytest.raises(CheckpointError):
        replaced(checkpoint, {"newest"})


def test_reset_is_consent_once() -> None:
    checkpoint = Checkpoint(may_replace_any_query=True)
    assert {"old"} == replaced(checkpoint, {"old"})
    with pytest.raises(CheckpointError):
        replaced(checkpoint, {"newest"})

    checkpoint = Checkpoint(may_replace_any_query=True)
    assert set() == replaced(checkpoint, set())
    with pytest.raises(CheckpointError):
        replaced(checkpoint, {"newest"})


def test_query_that_was_replaced_cannot_take_its_name_back() -> None:
    with pytest.raises(CheckpointError, match="streamjoin reset SPEC --start earliest"):
        replaced(Checkpoint(last_batch_id=7), {"newest"}, new_query=True)


@pytest.mark.parametrize(
    ("owners", "checkpoint", "is_refused"),
    [
        ([None, None], Checkpoint(), False),
        (["new", None], Checkpoint(), False),
        (["new", "other"], Checkpoint(), True),
        (["old", "new"], Checkpoint(replaced_queries=frozenset({"old"})), False),
        (["other"], Checkpoint(may_replace_any_query=True), False),
    ],
)
def test_owners_are_this_query_or_those_that_it_may_replace(
    monkeypatch: pytest.MonkeyPatch,
    owners: list[str | None],
    checkpoint: Any,
    is_refused: bool,
) -> None:
    slots = [slot_of(partition) for partition in range(len(owners))]
    topic = SimpleNamespace(slots=slots, owner=dict(zip(slots, owners, strict=True)).__getitem__)
    monkeypatch.setattr(ownership, "_CommitTopic", lambda *_: topic)

    if is_refused:
        with pytest.raises(CheckpointError, match="That query has replaced this one"):
            ownership.check_owners(TARGET, checkpoint, slot_of(9))
    else:
        ownership.check_owners(TARGET, checkpoint, slot_of(9))


def test_first_batch_with_a_marker_may_follow_batches_without() -> None:
    assert {"old"} == replaced(Checkpoint(last_batch_id=7), {"old"}, since=8, new_query=True)


def test_delivered_part_of_an_interval_counts_although_its_marker_is_not_written_yet() -> None:
    class Reader:
        def newest(self, *_: object, **__: object) -> Marker:
            return Marker(NO_BATCH, "", "old")

        def delivered(self, *_: object, to_the_end: bool) -> Delivered:
            assert to_the_end
            return Delivered(8, 8)

    reader: Any = Reader()
    slot = slot_of(0)
    claim = Marker(NO_BATCH, "", "new")
    found = [
        _Writer(TARGET, reader, slot, claim, reads_parts_of=queries).perform(step)
        for queries, step in (
            (["old"], Step.READ_MARKER),
            (["old"], Step.PEEK_MARKER),
            (["other"], Step.READ_MARKER),
        )
    ]
    assert [8, NO_BATCH, NO_BATCH] == [marker and marker.batch_id for marker in found]
