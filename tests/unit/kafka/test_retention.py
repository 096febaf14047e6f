"""The message about records that were deleted before they were read, with the ways to continue."""

from types import SimpleNamespace
from typing import Any

import pytest

from job.errors import RetentionError
from job.kafka import retention
from job.kafka.retention import Gap, check_retention, find_gaps
from tests.unit.specs import plan

LOST = Gap("left", "a", 1, 5, 9, 30)
TRUNCATED = Gap("right", "b", 0, 6, 0, 3)
SIDE = SimpleNamespace(topics=SimpleNamespace(are_several=False))
PLAN: Any = SimpleNamespace(side=lambda _: SIDE)
KAFKA: Any = None
READ = {"left": {1: 5}, "right": {0: 6}}


def test_gap_of_one_record_is_in_the_singular() -> None:
    assert "a partition 1: offsets 5 to 5 (1 record)" == str(Gap("left", "a", 1, 5, 6, 30))


@pytest.mark.parametrize(
    ("gaps", "has_state", "keeps_state"),
    [
        ([LOST], True, True),
        ([LOST], False, False),
        ([LOST, TRUNCATED], True, False),  # ids of results would repeat
    ],
)
def test_each_way_to_continue_is_named(
    monkeypatch: pytest.MonkeyPatch, gaps: list[Gap], has_state: bool, keeps_state: bool
) -> None:
    monkeypatch.setattr(retention, "find_gaps", lambda *_: gaps)
    with pytest.raises(RetentionError) as refusal:
        check_retention(PLAN, KAFKA, READ, has_state=has_state)

    message = str(refusal.value)
    assert "  a partition 1: offsets 5 to 8 (4 records)" in message
    assert ("`streamjoin checkpoint skip-gap SPEC`" in message) == keeps_state
    assert "`streamjoin reset SPEC --left 1=9" in message
    assert ("b partition 0: was read up to offset 6, and now ends at 3" in message) == (
        TRUNCATED in gaps
    )


def test_partitions_that_a_topic_no_longer_has_are_named_before_a_broker_is_asked() -> None:
    made = plan(left__topic=None, left__topics=["a", "b"])
    made = made.reading({"left": (2, 1), "right": (1,)})
    read = {"left": {0: 5, 1: 7, 1024: 3, 1025: 4}, "right": {0: 1, 1: 1}}
    with pytest.raises(RetentionError) as refusal:
        find_gaps(made, KAFKA, read)

    for text in (
        "  left.topic b partition 1: the topic has 1 partition\n",
        "  right.topic clicks partition 1: the topic has 1 partition\n",
        "were deleted and created again with fewer partitions",
        "`streamjoin reset SPEC --start earliest`",
    ):
        assert text in str(refusal.value)
