"""Reports of the executors, as the driver counts and raises them."""

from collections.abc import Mapping
from typing import Any

import pytest

from job.delivery.sink import TopicLimits, _ExactlyOnce
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

    def kept_back(self, batch_id: int, results: int) -> None:
        raise AssertionError(f"none are expected in batch {batch_id}: {results}")


def sink(listener: DeliveryListener) -> Any:
    made: Any = _ExactlyOnce(
        plan(output__delivery="exactly_once"),
        KafkaAccess("localhost:9092"),
        TopicLimits(1_000_000, 0),
        listener,
        lambda *_: None,
        _Checkpoint(),  # type: ignore[arg-type]  # the only attribute that is used
        since=0,
    )
    return made


def test_rows_and_results_are_reported() -> None:
    listener = DeliveryListener()
    sink(listener)._report_delivery(7, [Report(0, "committed", 3), Report(1, "skipped", 0)])

    assert [(7, 3, {"committed": 1, "skipped": 1})] == listener


def test_commit_whose_answer_was_lost_is_both_unknown_and_committed() -> None:
    listener = DeliveryListener()
    sink(listener)._report_delivery(7, [Report(0, "committed", 3), Report(1, "settled", 2)])

    assert [(7, 5, {"committed": 2, "unknown": 1})] == listener


@pytest.mark.parametrize(
    ("failed", "kind", "code", "retryable", "text"),
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
            Report(1, "taken_over", 0, "query 42 has written the newest marker"),
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
def test_failure_has_a_code_a_place_and_whether_to_retry(
    failed: Report, kind: type[StreamjoinError], code: str, *, retryable: bool, text: str
) -> None:
    listener = DeliveryListener()
    with pytest.raises(kind) as error:
        sink(listener)._report_delivery(7, [Report(0, "committed", 3), failed])
    assert (code, retryable) == (error.value.code, error.value.retryable)
    assert text in str(error.value)
    # The other partition's rows are out, and are not written again.
    assert 3 == listener[0][1]


def test_permanent_failure_is_raised_before_a_transient_one() -> None:
    reports = [Report(0, "aborted", 0, "broker away", retryable=True), Report(1, "fenced", 0, "x")]
    with pytest.raises(FencedError):
        sink(DeliveryListener())._report_delivery(7, reports)


def test_partition_that_did_not_run_is_an_error() -> None:
    with pytest.raises(DeliveryError, match="ran in 1 partitions instead of 2"):
        sink(DeliveryListener())._report_delivery(7, [Report(0, "committed", 3)])
