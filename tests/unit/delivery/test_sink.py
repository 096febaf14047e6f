"""What the driver makes of what the executors report."""

from collections.abc import Mapping
from typing import Any

import pytest

from job.delivery.sink import _ExactlyOnce, _Sizes
from job.delivery.transactions import Report
from job.errors import CheckpointError, DeliveryError, FencedError, StreamjoinError
from job.kafka.security import KafkaAccess
from tests.unit.specs import plan


class _Checkpoint:
    query_id = "4711"


class DeliveryListener(list[tuple[int, int, Mapping[str, int]]]):
    def delivered(self, batch_id: int, rows: int, results: Mapping[str, int]) -> None:
        self.append((batch_id, rows, {name: count for name, count in results.items() if count}))

    def dead_letters(self, counts: Mapping[tuple[str, str], int]) -> None:
        raise AssertionError(f"none are expected: {counts}")


def sink(told: DeliveryListener) -> Any:
    made: Any = _ExactlyOnce(
        plan(output__delivery="exactly_once"),
        KafkaAccess("localhost:9092"),
        _Sizes(1_000_000, 0),
        told,
        lambda *_: None,
        _Checkpoint(),  # type: ignore[arg-type]  # all that is asked of it here
        since=0,
    )
    return made


def test_rows_and_results_are_told() -> None:
    told = DeliveryListener()
    sink(told)._report_delivery(7, [Report(0, "committed", 3), Report(1, "skipped", 0)])

    assert [(7, 3, {"committed": 1, "skipped": 1})] == told


def test_commit_whose_answer_was_lost_is_both_unknown_and_committed() -> None:
    told = DeliveryListener()
    sink(told)._report_delivery(7, [Report(0, "committed", 3), Report(1, "settled", 2)])

    assert [(7, 5, {"committed": 2, "unknown": 1})] == told


@pytest.mark.parametrize(
    ("failed", "kind", "code", "retryable", "said"),
    [
        (Report(1, "fenced", 0, "stale"), FencedError, "fenced", False, "streamjoin-tested-1"),
        (
            Report(1, "disagreement", 0, "an older copy"),
            CheckpointError,
            "checkpoint",
            False,
            "checkpoint and commit topic tested.commits disagree: an older copy",
        ),
        (
            Report(1, "taken_over", 0, "the newest marker is that of query 42"),
            FencedError,
            "fenced",
            False,
            "another query has taken over the name tested in the commit topic tested.commits",
        ),
        (
            Report(1, "aborted", 0, "broker away", retryable=True),
            DeliveryError,
            "delivery",
            True,
            "delivered to attributed as streamjoin-tested-1 (aborted): broker away",
        ),
    ],
)
def test_failure_says_what_where_and_whether_to_try_again(
    failed: Report, kind: type[StreamjoinError], code: str, *, retryable: bool, said: str
) -> None:
    told = DeliveryListener()
    with pytest.raises(kind) as error:
        sink(told)._report_delivery(7, [Report(0, "committed", 3), failed])
    assert (code, retryable) == (error.value.code, error.value.retryable)
    assert said in str(error.value)
    # The other partition's rows are out, and are not written again.
    assert 3 == told[0][1]


def test_what_trying_again_does_not_cure_is_told_first() -> None:
    reports = [Report(0, "aborted", 0, "broker away", retryable=True), Report(1, "fenced", 0, "x")]
    with pytest.raises(FencedError):
        sink(DeliveryListener())._report_delivery(7, reports)


def test_partition_that_did_not_run_is_an_error() -> None:
    with pytest.raises(DeliveryError, match="ran in 1 partitions instead of 2"):
        sink(DeliveryListener())._report_delivery(7, [Report(0, "committed", 3)])
