"""Reads the facts about a key of the running join, and explains them."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from threading import Event

from confluent_kafka import KafkaException

from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.filters import earlier_filters
from job.checkpoint.skipped import skipped_ranges
from job.checkpoint.state_reader import StateReader
from job.checkpoint.successor import read_replay
from job.checkpoint.watermark_history import WatermarkHistory
from job.control.watermark_sentences import held_back, not_running
from job.errors import RequestError
from job.event_time.history import KEPT, WatermarkLine
from job.explain.evaluation import KeyEvaluation
from job.explain.explanation import RunningFacts, explained_key, known_rows
from job.explain.facts import Skipped
from job.explain.sentences import unreadable
from job.explain.topics import KeyTopicsReader
from job.instants import to_epoch_ms
from job.kafka.clients import no_broker
from job.kafka.security import kafka_access, librdkafka_settings
from job.plan.plan import JoinPlan
from job.plan.result_id import Place
from job.protocol import calls
from job.protocol.progress import BatchProgress
from job.protocol.results import KeyExplanation, KeyRows
from job.protocol.status import JobStatus, QueryState
from job.semantics.topic_records import TopicRecords
from job.spark.sql_questions import rows_of
from job.spec.durations import milliseconds
from job.spec.sides import SIDES, Side
from job.sql.rows import EvaluationError

# Time before the oldest row that can still match, for records that were written in disorder.
_MARGIN = timedelta(minutes=15)
_UNBOUNDED = timedelta(hours=1)
"""How far the topics are read if the state is unbounded."""


def explain_key(
    request: calls.Explain,
    reader: StateReader,
    state: Mapping[Side, KeyRows],
    status: JobStatus,
    present: WatermarkLine,
    batches: Sequence[BatchProgress],
    caller_gone: Event,
) -> KeyExplanation:
    """`state`: the rows of the key. `present`: measured before `state` was read. `batches`: the
    last ones, oldest first.

    Raises RequestError if the query would fail on the records, BrokerError if no broker answers,
    CancelledError once `caller_gone` is set.
    """
    plan, now_ms = reader.plan, present.at_ms
    since_ms = now_ms - milliseconds(_span(plan))
    if request.since is not None:
        since_ms = to_epoch_ms(request.since)
    access = kafka_access(plan.bootstrap_servers, plan.security, plan.schema_registry)
    try:
        decoded = TopicRecords(plan, access.registry)
        checkpoint = Checkpoint(reader.spark, plan.checkpoint)
        evaluation = KeyEvaluation(
            plan, rows_of(reader.spark), request.key, decoded, earlier_filters(checkpoint)
        )
        for side in SIDES:
            evaluation.select(side, [])  # Spark analyzes the expressions before the reading begins
        topics = KeyTopicsReader(plan, librdkafka_settings(access), since_ms, caller_gone).read(
            request.key, evaluation.select, known_rows(state), limit=request.limit
        )
        evaluated = evaluation.evaluated(topics.records)
    except KafkaException as error:
        raise no_broker(access, error) from error
    except EvaluationError as error:
        raise RequestError(f"the query would fail on the records of this key: {error}") from error
    history = WatermarkHistory(checkpoint.folder)
    replay, reset = read_replay(checkpoint), status.last_reset
    reset_at = None if reset is None else reset.completed_at
    facts = RunningFacts(
        plan=plan,
        watermark_ms=None if status.watermark is None else to_epoch_ms(status.watermark),
        state=state,
        topics=topics,
        evaluated=evaluated,
        cut=None if replay is None else replay.ends,
        reset_ms=None if reset_at is None else to_epoch_ms(reset_at),
        history=[*history.lines(max(since_ms, now_ms - milliseconds(KEPT))), present],
        is_running=status.state is QueryState.RUNNING,
        batches=batches,
        skipped=[
            Skipped(
                each.side,
                Place(each.topic, each.partition, each.first_offset),
                each.next_offset - each.first_offset,
                to_epoch_ms(each.skipped_at),
            )
            for each in skipped_ranges(checkpoint)
            if to_epoch_ms(each.skipped_at) >= since_ms
        ],
    )
    explained = explained_key(facts)
    sentences = [
        *not_running(status),
        *explained.records,
        *(held_back(status) if explained.waits else ()),
        *(
            f"{line}."
            for side, bad in evaluation.unreadable.items()
            for line in unreadable(side, bad)
        ),
        *explained.read,
    ]
    return KeyExplanation(sentences=sentences, left=state["left"], right=state["right"])


def _span(plan: JoinPlan) -> timedelta:
    """Time before now in which the records of rows in state, and their matches, were written."""
    sides = [plan.side(side) for side in SIDES]
    if any(side.retention is None for side in sides):
        return _UNBOUNDED
    retention = max((side.retention or timedelta(0) for side in sides), default=timedelta(0))
    window = plan.window.size if plan.window is not None else timedelta(0)
    return retention + window + max(side.watermark_delay for side in sides) + _MARGIN
