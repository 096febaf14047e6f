"""Files of several partitions: in which batches they are read, and what the texts say of it."""

import json

import pytest

from job.semantics.backlog import backlog_batches
from job.semantics.input_records import InputRecord, records_of_jsonl
from job.semantics.simulate import SimulatedBatch, simulate
from job.semantics.trace import batch_lines
from tests.sql_worker import ROWS
from tests.unit.semantics.test_simulate import T, plan, row


def records(*sizes: int) -> list[InputRecord]:
    """Partitions 0, 1, ... with so many records, one partition after the other."""
    return [InputRecord("{}", n, partition) for partition, m in enumerate(sizes) for n in range(m)]


def sizes(batch: list[InputRecord]) -> list[int]:
    return [sum(r.partition == n for r in batch) for n in range(3)]


def in_partition(number: int, *values: str, **more: object) -> list[str]:
    return [json.dumps({"value": v, "partition": number, **more}) for v in values]


def late(batches: list[SimulatedBatch]) -> list[str]:
    return [drop.record.value for b in batches for drop in b.drops if drop.reason == "late"]


# Two partitions an hour of event time apart, each in order. Read evenly, partition 1 is always far
# behind the newest event time of the topic.
AHEAD = [row(1, 3_600 + n) for n in range(10)]
BEHIND = [row(2, n) for n in range(10)]
LEFT = [*AHEAD, *in_partition(1, *BEHIND)]
RIGHT = [row(2, 3), row(8, 9_000)]


def test_batch_reads_of_each_partition_its_share_of_what_is_left() -> None:
    batches = list(backlog_batches(records(60, 30, 1), [], 10))

    assert [[6, 3, 1], [6, 3, 0], [6, 3, 0]] == [sizes(list(b.left)) for b in batches[:3]]
    assert 91 == sum(len(batch.left) for batch in batches)
    assert [{0, 1}, set()] == [set(batches[n].left_backlog) for n in (0, -1)]


def test_side_that_is_read_to_its_end_has_no_backlog() -> None:
    first, second = backlog_batches(records(3), records(1), 2)

    assert ({0}, set()) == (set(first.left_backlog), set(first.right_backlog))
    assert ([1, 0], [set(), set()]) == (
        [len(second.left), len(second.right)],
        [set(second.left_backlog), set(second.right_backlog)],
    )


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7, 1_000])
def test_no_row_of_a_slow_partition_of_a_file_is_late(batch_size: int) -> None:
    left, right = records_of_jsonl(LEFT, ROWS), records_of_jsonl(RIGHT, ROWS)

    batches = simulate(plan(), ROWS, left, right, batch_size=batch_size)

    assert [] == late(batches)
    matched = [r.right is not None for batch in batches for r in batch.output]
    assert (4, 6) == (matched.count(True), matched.count(False))  # of the slow partition


def test_rows_that_arrive_in_their_batch_are_late_behind_another_partition() -> None:
    """No backlog: the watermark follows the newest event time of the side, as live."""
    ahead = in_partition(0, AHEAD[0], batch=0)
    behind = [*in_partition(1, BEHIND[0], batch=1), *in_partition(1, BEHIND[1], batch=2)]
    right = in_partition(0, AHEAD[0], batch=0)

    batches = simulate(
        plan(), ROWS, records_of_jsonl([*ahead, *behind], ROWS), records_of_jsonl(right, ROWS)
    )

    assert [BEHIND[1]] == late(batches)


def test_texts_name_the_partition_that_holds_the_watermark_back() -> None:
    made = plan()
    batches = simulate(
        made, ROWS, records_of_jsonl(LEFT, ROWS), records_of_jsonl(RIGHT, ROWS), batch_size=4
    )
    lines = list(batch_lines(made, batches))

    assert "batch 0 · watermark 1970-01-01T00:00:00.000Z" == lines[0]
    second = next(line for line in lines if line.startswith("batch 1"))
    read = "held back by left partition 1, read to 2023-11-14T22:13:21.000Z"
    assert second.endswith(f" · {read}")
    assert "batch 5 · watermark 2023-11-14T23:13:19.000Z" in lines


def test_texts_name_a_partition_of_which_nothing_readable_is_read_yet() -> None:
    left = [row(1, 100), row(1, 101), *in_partition(1, "{", row(2, 0))]
    batches = simulate(
        plan(),
        ROWS,
        records_of_jsonl(left, ROWS),
        records_of_jsonl([row(1, 100)] * 2, ROWS),
        batch_size=2,
    )

    held = "batch 1 · watermark 1970-01-01T00:00:00.000Z · held back by left partition 1"
    assert f"{held}, no event time read yet" in list(batch_lines(plan(), batches))
    assert T > batches[1].watermarks.eviction
