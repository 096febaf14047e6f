"""Writes the records of one run of the real-time engine: at least once, or exactly once.

Results and dead letters are one stream of records. At-least-once delivery uses Spark's Kafka sink.
Exactly-once delivery passes the records to Java classes on the executors
(real_time/transactions.py), in micro-batches and in intervals. The rules are in
interval_protocol.py.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from job.change.replay import Replay
from job.checkpoint.checkpoint import Checkpoint
from job.dataflow.real_time import TopicLimits
from job.delivery.commit_protocol import Result
from job.delivery.exactly_once import (
    claim_name,
    delivery_error,
    delivery_target,
    fence_slots,
    input_fingerprint,
)
from job.delivery.producers import is_lasting, with_remedy
from job.delivery.sink import sink_options
from job.delivery.transactions import Report, Target, slot_of
from job.errors import StreamjoinError
from job.join_spec.output import Delivery
from job.kafka.security import KafkaAccess, spark_options
from job.plan import real_time, tuning
from job.plan.plan import JoinPlan
from job.real_time.transactions import Identity, Transactions
from job.spark.failures import cause_of_class

_FAILURE = "streamjoin.DeliveryFailure"
_PREFIX = "kafka."
"""Prefix of the options for Kafka's clients in Spark's sources and sinks."""


class RealTimeDelivery(ABC):
    """Writes the records of one run."""

    can_be_interrupted: bool
    """Whether a stop can interrupt a batch or an interval without repeated results."""

    @abstractmethod
    def write_batch(self, records: DataFrame, batch_id: int) -> None: ...

    @abstractmethod
    def interval_writer(self, records: DataFrame) -> DataStreamWriter: ...

    def delivered(self, computed: int) -> tuple[int, Mapping[str, int]]:
        """Results written and transactions by outcome, both since the last call. `computed`:
        results of the micro-batch."""
        return computed, {}

    def explained(self, _: Exception) -> StreamjoinError | None:
        """The failure of the delivery as an error for users. None: the delivery did not fail."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Called when the run has ended."""


def real_time_delivery(
    spark: SparkSession,
    plan: JoinPlan,
    access: KafkaAccess,
    checkpoint: Checkpoint,
    limits: TopicLimits,
    replay: Replay | None,
    *,
    fence: int,
    follows_catch_up: bool,
    new_query: bool,
) -> RealTimeDelivery:
    """Prepares the checkpoint and the commit topic for the delivery of the plan.

    `fence`: that of the checkpoint, read before the rest of the checkpoint. A run that another job
    replaces meanwhile has the smaller number. `follows_catch_up`: the previous run has prepared the
    commit topic. `new_query`: the user agrees to replace another query of the same name.
    `replay`: as for `claim_name`.
    """
    assert plan.real_time is not None
    options = sink_options(plan, access, max(limits.result_bytes_max, limits.dead_letter_bytes_max))
    if plan.output.delivery is Delivery.AT_LEAST_ONCE:
        checkpoint.end_exactly_once()
        return _AtLeastOnce(options)
    since = checkpoint.begin_exactly_once()
    checkpoint.ensure_query_id()
    target = delivery_target(plan, access, checkpoint, record_bytes_max=0)
    interrupted = checkpoint.interrupted_interval
    if not follows_catch_up:
        claim_name(plan, target, checkpoint, replay, since=since, new_query=new_query)
    if interrupted is not None and interrupted.repeat_until is None:
        # The writers of the interval may still run. If they read records after the ends of the
        # topics are recorded, these records would be repeated with a later watermark.
        fence = checkpoint.increment_fence()
        fence_slots(plan, target, fence)
    transactions = Transactions(
        spark,
        Identity(
            plan.name,
            target.query_id,
            plan.output.topic,
            plan.output.commit_topic,
            since=since,
            repeats=None if interrupted is None or follows_catch_up else interrupted.batch_id,
            fence=fence,
        ),
        {"bootstrap.servers": plan.bootstrap_servers, **_client(spark_options(access))},
        producer_settings(options),
        commit_interval=plan.real_time.commit_interval,
        timeout=timedelta(seconds=tuning.TRANSACTION_TIMEOUT_SECONDS),
    )
    return _ExactlyOnce(checkpoint, target, transactions)


class _AtLeastOnce(RealTimeDelivery):
    can_be_interrupted = False

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def write_batch(self, records: DataFrame, _: int) -> None:
        records.write.format("kafka").options(**self._options).save()

    def interval_writer(self, records: DataFrame) -> DataStreamWriter:
        options = {**self._options, **real_time.SINK_OPTIONS}
        return records.writeStream.format("kafka").options(**options)

    def close(self) -> None:
        """Does nothing: Spark closes its producers."""


class _ExactlyOnce(RealTimeDelivery):
    can_be_interrupted = True

    def __init__(self, checkpoint: Checkpoint, target: Target, transactions: Transactions) -> None:
        self._checkpoint = checkpoint
        self._target = target
        self._transactions = transactions
        self._failures: dict[tuple[int, int], str] = {}
        """Result of each failed transaction that was not counted, by batch and partition."""

    def write_batch(self, records: DataFrame, batch_id: int) -> None:
        fingerprint = input_fingerprint(self._checkpoint, batch_id)
        self._transactions.write_batch(records, batch_id, fingerprint)

    def interval_writer(self, records: DataFrame) -> DataStreamWriter:
        return self._transactions.interval_writer(records)

    def delivered(self, _: int) -> tuple[int, Mapping[str, int]]:
        delivered = self._transactions.take_delivered()
        failed, self._failures = Counter(self._failures.values()), {}
        return delivered.results, {
            **failed,
            Result.COMMITTED.value: delivered.committed,
            Result.SKIPPED.value: delivered.skipped,
        }

    def explained(self, error: Exception) -> StreamjoinError | None:
        failure = cause_of_class(error, _FAILURE)
        if failure is None:
            return None
        self._failures[failure.batchId(), failure.partition()] = failure.kind()
        code = failure.errorCode()
        report = Report(
            failure.partition(),
            failure.kind(),
            rows=0,
            message=with_remedy(failure.getMessage(), code),
            retryable=failure.isRetryable() and not is_lasting(code),
        )
        return delivery_error(failure.batchId(), report, self._target, slot_of(failure.partition()))

    def close(self) -> None:
        self._transactions.close()


def producer_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Settings of the producers of exactly-once delivery, from the options of Spark's sink."""
    return _client({**options, **real_time.TRANSACTION_OPTIONS})


def _client(options: Mapping[str, str]) -> dict[str, str]:
    """Settings of Kafka's clients from Spark options."""
    return {
        name.removeprefix(_PREFIX): value
        for name, value in options.items()
        if name.startswith(_PREFIX)
    }
