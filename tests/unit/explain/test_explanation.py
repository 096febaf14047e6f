"""The explanation of a key of a running join: facts of topics, state and history, and sentences."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from job.dead_letters.headers import OFFSET, PARTITION, REASON, SIDE, TOPIC, dead_letter
from job.event_time.history import WatermarkLine
from job.explain.evaluation import Evaluated
from job.explain.explanation import RunningFacts, explained_key
from job.explain.facts import KeyRecord, Letter, OutputRead, Result, Skipped, StoredRow
from job.explain.topics import KeyTopics, TopicRead, add_letter, name_rows
from job.plan.result_id import Place
from job.protocol.progress import BatchProgress
from job.protocol.results import KeyRows, StateRow
from job.spec.sides import Side
from tests.unit.explain.test_causes import (
    HOUR_MS,
    LEFT,
    MATCHING,
    MINUTE_MS,
    NOW_MS,
    RIGHT,
    L,
    outer,
    record,
)
from tests.unit.explain.test_causes import explained as of_first
from tests.unit.service.builders import NOW, batch

PRESENT = WatermarkLine(
    at_ms=NOW_MS, watermark_ms=NOW_MS - 12_000, left_offsets={1: 20}, right_offsets={0: 20}
)
RECORD = KeyRecord("left", LEFT, 1, NOW_MS, NOW_MS, NOW_MS)
LATE = "field t is 2026-11-20T12:00:00.000Z, not past the watermark 2026-11-20T12:00:30.000Z"
WAITS = "waits for a right row until the watermark passes 2026-11-20T12:01:00.000Z"


def explained(
    *records: KeyRecord,
    state: list[StateRow] | None = None,
    history: tuple[WatermarkLine, ...] = (PRESENT,),
    cut: Mapping[Side, Mapping[int, int]] | None = None,
    reset_ms: int | None = None,
    is_running: bool = True,
    batches: Sequence[BatchProgress] = (),
    skipped: Sequence[Skipped] = (),
    **topics: Any,
) -> list[str]:
    def key_rows(of: Side) -> KeyRows:
        rows = state or [] if of == "left" else []
        return KeyRows(side=of, key=["7"], batch_id=7, rows=rows, more=False, duration_seconds=0.1)

    output = OutputRead("attributed", NOW_MS - MINUTE_MS, is_complete=True)
    found = explained_key(
        RunningFacts(
            plan=outer(),
            watermark_ms=NOW_MS - 12_000,
            state={"left": key_rows("left"), "right": key_rows("right")},
            topics=KeyTopics(**{"output": output, **topics}),
            evaluated=Evaluated(records, {}),
            history=history,
            cut=cut,
            reset_ms=reset_ms,
            is_running=is_running,
            batches=batches,
            skipped=skipped,
        )
    )
    return [*found.records, *found.read]


def state_row() -> StateRow:
    return StateRow(
        row={},
        event_time=NOW,
        topic=LEFT.topic,
        partition=LEFT.partition,
        offset=LEFT.offset,
        matched=False,
        leaves_after=NOW.replace(minute=1),
    )


def test_key_without_records_says_so_and_how_far_the_topics_were_read() -> None:
    read = [
        TopicRead("clicks", NOW_MS - MINUTE_MS, NOW_MS, is_complete=True),
        TopicRead("impressions", NOW_MS - MINUTE_MS, NOW_MS - 30_000),
        TopicRead("attributed", NOW_MS, problem="Topic authorization failed"),
        TopicRead("by_event_time", 0, NOW_MS, is_complete=True),
    ]

    assert [
        (
            "No record with this key is in what was read of the topics, and none is in state. To "
            "read earlier records, give an earlier time: `--since` of the command, `since` over "
            "HTTP."
        ),
        (
            "Read to their ends: clicks from 2026-11-20T11:59:00.000Z, by_event_time from its "
            "first record."
        ),
        (
            "Read impressions from 2026-11-20T11:59:00.000Z, only to 2026-11-20T11:59:30.000Z: the "
            "limit of 64 MiB or 10 s was reached."
        ),
        "attributed cannot be read: Topic authorization failed.",
    ] == explained(read=read)


@pytest.mark.parametrize(
    ("starts", "text"),
    [
        ({"a": 0}, "Read a from its first record to its end."),
        ({"a": 0, "b": 0}, "Read a and b from their first records to their ends."),
        (
            {"a": NOW_MS, "b": NOW_MS, "c": NOW_MS},
            "Read a, b and c from 2026-11-20T12:00:00.000Z to their ends.",
        ),
        (
            {"a": NOW_MS, "b": 0, "c": NOW_MS},
            "Read to their ends: a and c from 2026-11-20T12:00:00.000Z, b from its first record.",
        ),
    ],
)
def test_topics_that_were_read_to_their_ends_have_one_line(
    starts: dict[str, int], text: str
) -> None:
    read = [TopicRead(topic, start, is_complete=True) for topic, start in starts.items()]
    assert [text] == explained(RECORD, read=read)[1:]


def test_skipped_records_are_named_because_one_may_have_the_key() -> None:
    ranges = [Skipped("right", RIGHT, 1, NOW_MS), Skipped("left", LEFT, 1_200, NOW_MS)]
    first, second = explained(RECORD, skipped=ranges)[1:]

    assert first == (
        "Kafka deleted 1 record from right clicks/0/4 on before the query read them, and "
        "`streamjoin checkpoint skip-gap` skipped them at 2026-11-20T12:00:00.000Z: a record with "
        "this key may be among them."
    )
    assert second.startswith("Kafka deleted 1,200 records from left impressions/1/17 on")


def test_record_after_the_offsets_of_the_state_is_unread() -> None:
    late = WatermarkLine(at_ms=NOW_MS, watermark_ms=None, left_offsets={1: 15})

    assert f"{L} is not read yet: 2 records before it" in explained(RECORD, history=(late,))[0]


def test_row_in_state_is_explained_even_if_its_record_was_removed() -> None:
    [first] = explained(state=[state_row()])

    assert first.startswith(
        f"{L} {WAITS} (1 min 12 s ahead of it; the watermark history is too short"
    )


def test_pace_is_that_of_the_history() -> None:
    before = WatermarkLine(at_ms=NOW_MS - 60_000, watermark_ms=NOW_MS - 72_000)

    assert (
        "at its present pace at about 12:01:12 UTC)"
        in explained(state=[state_row()], history=(before, PRESENT))[0]
    )


BEFORE = WatermarkLine(at_ms=NOW_MS - 60_000, watermark_ms=NOW_MS - 72_000)
STANDS = f"{WAITS} (1 min 12 s ahead of it; the watermark does not advance at present)"


@pytest.mark.parametrize(("seconds", "stands"), [(11, True), (9, False)])
def test_waiting_row_has_no_time_if_no_batch_has_moved_the_watermark(
    seconds: int, stands: bool
) -> None:
    """The history has a line a minute, so it still shows the pace before the watermark stood."""
    started = NOW - timedelta(seconds=seconds)
    last = batch(watermark_ms=NOW_MS - 12_000, started_at=started, duration_seconds=0.5)
    first = explained(state=[state_row()], history=(BEFORE, PRESENT), batches=[last])[0]
    assert stands == (STANDS in first)


def test_waiting_row_has_no_time_while_the_query_does_not_run() -> None:
    first = explained(state=[state_row()], history=(BEFORE, PRESENT), is_running=False)[0]
    assert STANDS in first


def test_lines_of_the_replay_are_not_part_of_the_pace() -> None:
    minutes = [
        WatermarkLine(
            at_ms=NOW_MS - minute * MINUTE_MS,
            watermark_ms=NOW_MS - 12_000 - behind * MINUTE_MS,
            left_offsets={1: offset},
        )
        # The replay reads twelve minutes of event time in a minute.
        for minute, behind, offset in ((3, 14, 5), (2, 2, 15), (1, 1, 18))
    ]
    history = (*minutes, PRESENT)
    row = [state_row()]

    after = explained(state=row, history=history, cut={"left": {1: 15}, "right": {}})[0]
    assert "at its present pace at about 12:01:12 UTC)" in after
    assert "too short" in explained(state=row, history=history, cut={"left": {1: 19}})[0]


def test_late_row_has_the_watermark_of_its_dead_letter() -> None:
    letters = {("left", LEFT): Letter("late", LATE, "dead/0/3")}

    assert (
        f"{L} was late: it is 30.0 s behind the watermark, which had reached "
        "2026-11-20T12:00:30.000Z; its dead letter is dead/0/3."
    ) == explained(RECORD, letters=letters)[0]


def test_row_at_the_watermark_is_late() -> None:
    letters = {("left", LEFT): Letter("late", LATE.replace("00:30", "00:00"), "dead/0/3")}

    assert (
        f"{L} was late: it is at the watermark, which had reached 2026-11-20T12:00:00.000Z; "
        "its dead letter is dead/0/3."
    ) == explained(RECORD, letters=letters)[0]


def test_late_row_has_the_watermarks_of_the_history() -> None:
    before = PRESENT.model_copy(update={"watermark_ms": NOW_MS, "left_offsets": {1: 10}})
    after = PRESENT.model_copy(update={"watermark_ms": NOW_MS + MINUTE_MS})

    assert (
        "was late by at least 0.0 s: the watermark was between 2026-11-20T12:00"
        in (explained(RECORD, history=(before, after))[0])
    )


def test_result_names_a_record_that_was_not_read() -> None:
    result = Result({"left": LEFT, "right": RIGHT}, "attributed/0/3", NOW_MS)
    of_left, of_right = explained(RECORD, results=[result], named=[("right", RIGHT)])

    assert of_left.startswith(f"{L} matched right clicks/0/4: the result is attributed/0/3")
    assert of_right.startswith("right clicks/0/4 matched left impressions/1/17: the result is")


def test_older_records_that_are_left_out_are_counted() -> None:
    assert (
        "1,200 older left records with this key are left out: increase `limit` of the call over "
        "HTTP."
    ) in explained(RECORD, left_out={"left": 1_200, "right": 0})


def test_dead_letter_is_explained_even_if_its_record_was_removed() -> None:
    row = ("left", Place("impressions", 1, 3))

    assert [
        "left impressions/1/3 is a bad record (tombstone): no value; its dead letter is dead/0/1."
    ] == explained(letters={row: Letter("tombstone", "no value", "dead/0/1")}, named=[row])


def test_rows_that_only_results_name_are_limited_and_the_rest_is_counted() -> None:
    matches = [Place("clicks", 0, number) for number in range(5)]
    of_row = [Result({"left": LEFT, "right": each}, "attributed/0/3", NOW_MS) for each in matches]
    found = KeyTopics(results=of_row)
    name_rows(found, {("left", LEFT)}, 2)

    assert [("right", matches[3]), ("right", matches[4])] == found.named
    assert (
        "3 more right records, which only results or dead letters name, are left out: increase "
        "`limit` of the call over HTTP."
    ) in explained(RECORD, not_named=found.not_named)


@pytest.mark.parametrize(
    ("reason", "offset", "is_of_key"),
    [("malformed_json", 3, True), ("absurd_event_time", 3, False), ("late", LEFT.offset, True)],
)
def test_letter_of_a_record_with_another_key_is_not_of_the_key(
    reason: str, offset: int, is_of_key: bool
) -> None:
    """The record key is that of the request, and the value that was read has another one."""
    headers = {TOPIC: LEFT.topic, PARTITION: "1", OFFSET: str(offset), SIDE: "left", REASON: reason}
    raw = [(name, text.encode()) for name, text in headers.items()]
    letter = dead_letter("dead/0/1", b"7", None, raw)
    assert letter is not None
    found = KeyTopics()

    add_letter(letter, raw, {("left", LEFT)}, b"7", found)

    assert is_of_key == (("left", Place(LEFT.topic, 1, offset)) in found.letters)


def test_row_in_state_is_read_even_if_its_batch_ended_after_the_present_line() -> None:
    before = PRESENT.model_copy(update={"left_offsets": {1: 15}})

    assert explained(RECORD, state=[state_row()], history=(before,))[0].startswith(f"{L} {WAITS}")


def test_row_that_the_query_before_the_change_has_read_is_not_late() -> None:
    cut: dict[Side, dict[int, int]] = {"left": {LEFT.partition: LEFT.offset + 1}, "right": {}}
    [sentence, *_] = explained(RECORD, cut=cut)
    assert "was read by the query before the last change" in sentence

    cut["left"][LEFT.partition] = LEFT.offset
    [sentence, *_] = explained(RECORD, cut=cut)
    assert "before the last change" not in sentence


def test_untraced_row_has_the_time_of_the_reset() -> None:
    [sentence, *_] = explained(RECORD, reset_ms=NOW_MS)
    assert "The query was reset at 2026-11-20T12:00:00.000Z, which removed all rows" in sentence


def test_pair_of_rows_that_were_read_before_the_change_is_kept_back() -> None:
    left, right = record(), record("right")
    before = frozenset({left.row, right.row})
    waiting = {left.row: StoredRow(NOW_MS + HOUR_MS, matched=False)}

    both = of_first(left, right, pair=MATCHING, stored=waiting, before_change=before)
    assert "matches it by the spec after the last change, and both were read before it" in both
    matched = {left.row: StoredRow(NOW_MS + HOUR_MS, matched=True)}
    assert (
        f"{L} has matched a right row; right clicks/0/4 matches it by the spec after the last "
        "change, and both were read before it: their pair is not emitted."
    ) == of_first(left, right, pair=MATCHING, stored=matched, before_change=before)
    one = of_first(left, right, pair=MATCHING, stored=waiting, before_change=frozenset({left.row}))
    assert "before the last change" not in one


def test_result_of_before_a_reset_is_not_that_of_a_record_of_the_recreated_topic() -> None:
    def shown(reset_ms: int | None) -> str:
        result = Result({"left": LEFT, "right": RIGHT}, "attributed/0/3", NOW_MS - MINUTE_MS)
        return explained(RECORD, results=[result], reset_ms=reset_ms)[0]

    assert "matched right" in shown(None)
    assert "matched right" in shown(NOW_MS - 2 * MINUTE_MS)
    assert "matched right" not in shown(NOW_MS - MINUTE_MS // 2)
