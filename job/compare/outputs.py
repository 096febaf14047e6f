"""Reads the output topics of two specs and compares their results.

The specs must join the same input topics, because a result is identified by the positions of its
input records.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import KafkaException, Message

from job.compare.report import OutputRead, Report
from job.compare.results import OUTPUTS, Result, Results
from job.compare.span import Offsets, Span
from job.compare.values import ContentReader
from job.errors import Problem, SpecError, TopicError
from job.kafka.clients import (
    ANSWER_SECONDS,
    NOT_READABLE,
    AdminClient,
    admin,
    at_time,
    bytes_of,
    describe_error,
    list_offsets,
    no_broker,
    read_to_end,
)
from job.kafka.security import KafkaAccess, kafka_access, librdkafka_settings
from job.plan.plan import JoinPlan
from job.plan.result_id import ID_HEADER, places
from job.spec.sides import SIDES
from job.spec.start_positions import OFFSET_MAX
from job.spec.value_format import Format, KeyFormat

_READ_SECONDS = 30.0
# A result is written after its input records. Their producers' clocks may be ahead of the clock of
# the job, by the default of Kafka's message.timestamp.after.max.ms at most.
AHEAD_MS = 3_600_000


def compare_outputs(
    first: JoinPlan, second: JoinPlan, *, since_ms: int | None, until_ms: int | None, limit: int
) -> Report:
    """`since_ms`, `until_ms`: timestamps of input records, in milliseconds since 1970. None: no
    bound. `limit`: results to show of each kind.

    Raises SpecError if the outputs cannot be compared, other StreamjoinErrors if they cannot be
    read.
    """
    _check(first, second)
    span = _span(first, since_ms, until_ms)
    with (
        TemporaryDirectory(prefix="streamjoin-compare-") as folder,
        Results(Path(folder)) as results,
    ):
        read = [
            _read(plan, results, output, span, since_ms)
            for output, plan in zip(OUTPUTS, (first, second), strict=True)
        ]
        comparison = results.compared(limit=limit, are_complete=until_ms is not None)
    return Report((read[0], read[1]), comparison)


def _check(first: JoinPlan, second: JoinPlan) -> None:
    """Raises SpecError with the problems of the second spec."""
    problems = [
        Problem(
            f"{side}.topic",
            second.side(side).topic,
            f"must be {first.side(side).topic} as in the first spec: results of other input topics "
            "have other ids",
        )
        for side in SIDES
        if first.side(side).topics != second.side(side).topics
    ]
    servers = (first.bootstrap_servers, second.bootstrap_servers)
    if first.output.topic == second.output.topic and servers[0] == servers[1]:
        message = "is the output topic of both specs: set another topic in one of them"
        problems.append(Problem("output.topic", second.output.topic, message))
    for field, formats in {
        "output.format": tuple(map(_format, (first, second))),
        "output.key_format": (first.output.key_format, second.output.key_format),
    }.items():
        if formats[0] is not formats[1]:
            message = f"must be {formats[0]} as in the first spec: only one format is compared"
            problems.append(Problem(field, formats[1], message))
    if problems:
        raise SpecError(problems)


def _format(plan: JoinPlan) -> KeyFormat:
    schema = plan.output.schema
    return KeyFormat(Format.JSON if schema is None else schema.format)


def _span(plan: JoinPlan, since_ms: int | None, until_ms: int | None) -> Span:
    if since_ms is None and until_ms is None:
        return Span()
    access = kafka_access(plan.bootstrap_servers, plan.security)
    client = admin(librdkafka_settings(access))
    try:
        partitions = _input_partitions(plan, client)
        starts, ends = (
            None if ms is None else _offsets(client, partitions, ms) for ms in (since_ms, until_ms)
        )
    except KafkaException as error:
        raise no_broker(access, error) from error
    return Span(starts, ends)


def _input_partitions(plan: JoinPlan, client: AdminClient) -> dict[str, list[int]]:
    """Partitions of each input topic. Raises TopicError if a topic does not exist."""
    topics = client.list_topics(timeout=ANSWER_SECONDS).topics
    names = plan.input_topics | {
        name for name in topics for side in SIDES if plan.side(side).topics.matches(name)
    }
    if missing := sorted(names - set(topics)):
        raise TopicError(
            f"input topic {', '.join(missing)} does not exist, or may not be described: --since "
            "and --until select results by the timestamps of their input records"
        )
    return {name: sorted(topics[name].partitions) for name in names}


def _offsets(client: AdminClient, topics: Mapping[str, list[int]], ms: int) -> Offsets:
    """The first record of each partition with that timestamp or a later one."""
    return {
        (topic, partition): offset if offset >= 0 else OFFSET_MAX
        for topic, partitions in topics.items()
        for partition, offset in list_offsets(client, topic, partitions, at_time(ms)).items()
    }


def _read(
    plan: JoinPlan, found: Results, output: int, span: Span, since_ms: int | None
) -> OutputRead:
    access = kafka_access(plan.bootstrap_servers, plan.security, plan.schema_registry)
    key = ContentReader(plan.output.key_format, access.registry)
    value = ContentReader(_format(plan), access.registry)
    results = outside = without_id = 0

    def selected() -> Iterator[Result]:
        nonlocal results, outside, without_id
        for message in _messages(plan, access, since_ms):
            result_id = _result_id(message)
            records = None if result_id is None else places(result_id)
            if result_id is None or records is None:
                without_id += 1
            elif not span.contains(records.values()):
                outside += 1
            else:
                results += 1
                yield Result(
                    result_id,
                    key.text(bytes_of(message.key())),
                    value.text(bytes_of(message.value())),
                    message.partition() or 0,
                    message.offset() or 0,
                )

    found.add(output, selected())
    return OutputRead(plan.output.topic, results, outside, without_id, key, value)


def _messages(plan: JoinPlan, access: KafkaAccess, since_ms: int | None) -> Iterator[Message]:
    """The committed records of the output topic, up to its present end."""
    topic, settings = plan.output.topic, librdkafka_settings(access)
    starts: dict[int, int] = {}
    try:
        # The timestamp of a result is the time at which it was written, or an event time.
        if since_ms is not None and not plan.output.has_event_time:
            starts = _starts(admin(settings), topic, since_ms - AHEAD_MS)
        yield from read_to_end(settings, topic, "streamjoin-compare", _READ_SECONDS, starts)
    except KafkaException as error:
        if error.args[0].code() in NOT_READABLE:
            raise TopicError(
                f"output topic {topic} cannot be read: {describe_error(error)}. The first start of "
                "its query creates the topic, or `streamjoin topics create`"
            ) from error
        raise no_broker(access, error) from error


def _starts(client: AdminClient, topic: str, ms: int) -> dict[int, int]:
    """Start offsets. -1: the partition has no record at that time or later."""
    partitions = client.list_topics(topic, ANSWER_SECONDS).topics[topic].partitions
    return list_offsets(client, topic, partitions, at_time(ms))


def _result_id(message: Message) -> str | None:
    """Value of the header. None: the record has no such header."""
    content = dict(message.headers() or ()).get(ID_HEADER)
    return content.decode(errors="replace") if isinstance(content, bytes) else None
