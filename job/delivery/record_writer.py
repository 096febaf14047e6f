"""Writes the records of one run of the query to Kafka: at least once, or exactly once.

Both joins write with it, in micro-batches and in intervals. At-least-once delivery uses Spark's
Kafka sink. Exactly-once delivery passes the records to Java classes on the executors
(writer/transactions.py). The rules are in tests/unit/delivery/interval_protocol.py.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from job.checkpoint.checkpoint import Checkpoint
from job.dataflow.written import TopicLimits
from job.delivery.commit_protocol import Result
from job.delivery.exactly_once import (
    claim_name,
    delivery_target,
    fence_slots,
    input_fingerprint,
)
from job.delivery.producers import again, is_lasting, with_remedy
from job.delivery.slots import dead_letter_slot, transactional_id
from job.errors import CheckpointError, DeliveryError, FencedError, StreamjoinError
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.security import KafkaAccess, spark_options
from job.plan import real_time, tuning
from job.plan.plan import JoinPlan
from job.replay.replay import Replay
from job.spark.failures import cause_of_class
from job.spec.output import Delivery
from job.writer.transactions import Identity, Transactions

_FAILURE = "streamjoin.DeliveryFailure"
_PREFIX = "kafka."
"""Prefix of the options for Kafka's clients in Spark's sources and sinks."""


class RecordWriter(ABC):
    """Writes the records of one run. The records have the COLUMNS of writer/transactions.py."""

    can_be_interrupted: bool
    """Whether a stop can interrupt a batch or an interval without repeated results."""

    @abstractmethod
    def write_batch(self, records: DataFrame, batch_id: int) -> None:
        """Write the records of a micro-batch."""

    @abstractmethod
    def write_dead_letters(self, letters: DataFrame, batch_id: int) -> bool:
        """Write dead letters that are no part of the records of the micro-batch. Returns whether
        they are written now; False: an earlier attempt of the batch has written them."""

    @abstractmethod
    def interval_writer(self, records: DataFrame) -> DataStreamWriter: ...

    def delivered(self, computed: int) -> tuple[int, Mapping[str, int]]:
        """Results written and transactions by outcome, both since the last call. `computed`:
        results of the micro-batch."""
        return computed, {}

    def error_of(self, _: Exception) -> StreamjoinError | None:
        """The failure of the delivery as an error for users. None: the delivery did not fail."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Called when the run has ended."""


def record_writer(
    spark: SparkSession,
    plan: JoinPlan,
    kafka: KafkaAdmin,
    checkpoint: Checkpoint,
    limits: TopicLimits,
    replay: Replay | None,
    *,
    fence: int,
    follows_catch_up: bool,
    new_query: bool,
) -> RecordWriter:
    """Prepares the checkpoint and the commit topic for the delivery of the plan.

    `fence`: that of the checkpoint, read before the rest of the checkpoint. A run that another job
    replaces meanwhile has the smaller number. `follows_catch_up`: the previous run has prepared the
    commit topic. `new_query`: the user agrees to replace another query of the same name.
    `replay`: as for `claim_name`.
    """
    access = kafka.access
    options = sink_options(plan, access, max(limits.result_bytes_max, limits.dead_letter_bytes_max))
    if plan.output.delivery is Delivery.AT_LEAST_ONCE:
        # An interrupted batch is written again, also the part that was already written.
        checkpoint.end_exactly_once()
        return _AtLeastOnce(options)
    since = checkpoint.begin_exactly_once()
    checkpoint.ensure_query_id()
    target = delivery_target(plan, kafka, checkpoint)
    interrupted = checkpoint.interrupted_interval
    if not follows_catch_up:
        claim_name(plan, target, checkpoint, replay, since=since, new_query=new_query)
    if interrupted is not None and interrupted.repeat_until is None:
        # The writers of the interval may still run. If they read records after the ends of the
        # topics are recorded, these records would be repeated with a later watermark.
        fence = checkpoint.increment_fence()
        fence_slots(plan, target, fence)
    identity = Identity(
        plan.name,
        checkpoint.query_id,
        plan.output.topic,
        plan.output.commit_topic,
        since=since,
        repeats=None if interrupted is None or follows_catch_up else interrupted.batch_id,
        fence=fence,
    )
    if plan.real_time is not None:
        options |= real_time.WAITING_OPTIONS
    return _ExactlyOnce(spark, plan, access, checkpoint, identity, producer_settings(options))


def sink_options(plan: JoinPlan, access: KafkaAccess, bytes_max: int) -> dict[str, str]:
    """Options of Spark's Kafka sink. Kafka's client refuses records above max.request.size or
    buffer.memory."""
    largest = {
        "kafka.max.request.size": str(max(bytes_max, tuning.REQUEST_BYTES)),
        "kafka.buffer.memory": str(max(bytes_max, tuning.BUFFER_BYTES)),
    }
    return {**plan.output.sink_options, **largest, **spark_options(access)}


class _AtLeastOnce(RecordWriter):
    can_be_interrupted = False

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def write_batch(self, records: DataFrame, _: int) -> None:
        records.write.format("kafka").options(**self._options).save()

    def write_dead_letters(self, letters: DataFrame, batch_id: int) -> bool:
        self.write_batch(letters, batch_id)
        return True

    def interval_writer(self, records: DataFrame) -> DataStreamWriter:
        options = {**self._options, **real_time.SINK_OPTIONS}
        return records.writeStream.format("kafka").options(**options)

    def close(self) -> None:
        """Does nothing: Spark closes its producers."""


class _ExactlyOnce(RecordWriter):
    can_be_interrupted = True

    def __init__(
        self,
        spark: SparkSession,
        plan: JoinPlan,
        access: KafkaAccess,
        checkpoint: Checkpoint,
        identity: Identity,
        producer: Mapping[str, str],
    ) -> None:
        self._plan = plan
        self._checkpoint = checkpoint
        intervals = plan.real_time
        client = {"bootstrap.servers": plan.bootstrap_servers, **_client(spark_options(access))}
        transactions = partial(
            Transactions,
            *(spark, identity, client, producer),
            commit_interval=timedelta() if intervals is None else intervals.commit_interval,
            timeout=timedelta(seconds=tuning.TRANSACTION_TIMEOUT_SECONDS),
        )
        self._transactions = transactions()
        slot = self._dead_letter_slot = dead_letter_slot(plan)
        self._letters = transactions(only_slot=(slot.name, slot.commit_partition))
        self._failures: dict[tuple[int, str], str] = {}
        """Kind of each failure of results that was not counted, by batch and slot."""

    def write_batch(self, records: DataFrame, batch_id: int) -> None:
        fingerprint = input_fingerprint(self._checkpoint, batch_id)
        self._transactions.write_batch(records, batch_id, fingerprint)

    def write_dead_letters(self, letters: DataFrame, batch_id: int) -> bool:
        fingerprint = input_fingerprint(self._checkpoint, batch_id)
        self._letters.write_batch(letters.coalesce(1), batch_id, fingerprint)
        return self._letters.take_delivered().skipped == 0

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

    def error_of(self, error: Exception) -> StreamjoinError | None:
        failure = cause_of_class(error, _FAILURE)
        if failure is None:
            return None
        batch_id, slot, kind = failure.batchId(), failure.slot(), failure.kind()
        if slot != self._dead_letter_slot.name:
            self._failures[batch_id, slot] = kind
        name, commit_topic = self._plan.name, self._plan.output.commit_topic
        message, code = failure.getMessage(), failure.errorCode()
        if kind == "disagreement":
            return CheckpointError(
                f"checkpoint and commit topic {commit_topic} disagree: {message}"
            )
        if kind == "taken_over":
            return FencedError(
                f"another query has taken over the name {name} in the commit topic "
                f"{commit_topic}: {message}. Two queries with one name cannot both run: end one of "
                "the jobs, or change the `name` of this one"
            )
        identity = transactional_id(name, slot)
        if kind == "fenced":
            return FencedError(
                f"another job has taken over this query: it now writes as {identity}. Two jobs "
                f"with one name cannot both run: end one of them, and `restart` the other"
            )
        is_retryable = failure.isRetryable() and not is_lasting(code)
        return DeliveryError(
            f"batch {batch_id} could not be delivered to {self._topic(slot)} as {identity} "
            f"({kind}): {with_remedy(message, code)}{again(is_retryable, 'runs the batch')}",
            retryable=is_retryable,
        )

    def _topic(self, slot: str) -> str:
        letters = self._plan.dead_letter
        if letters is not None and slot == self._dead_letter_slot.name:
            return letters.topic
        return self._plan.output.topic

    def close(self) -> None:
        self._transactions.close()
        self._letters.close()


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
