"""Reads the topics of a join, and compares its results with the specification."""

from collections.abc import Iterator, Mapping

from job.api.client import JobClient
from job.api.query import QueryView
from job.check.reading import with_topics_of
from job.errors import ConflictError, JobUnavailableError, RequestError, TopicError
from job.instants import to_epoch_ms
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.security import kafka_access, librdkafka_settings
from job.kafka.topic_patterns import matching_topics
from job.kafka.topic_settings import TopicSettings, bytes_max, is_compacted, read_settings
from job.plan.plan import JoinPlan
from job.semantics.topic_records import TopicRecords
from job.spec.sides import SIDES, Side
from job.sql.rows import SqlRows
from job.verify.absent import OutputRead
from job.verify.expected import expected_results
from job.verify.joined import CLOCKS_MS, Progress
from job.verify.report import Report
from job.verify.topics import InputParts, TopicPart, input_parts, output_part, written_results
from job.verify.verification import Verification


def verify_output(
    plan: JoinPlan, rows: SqlRows, job: JobClient, since_ms: int | None, until_ms: int | None
) -> Report:
    """`since_ms`, `until_ms`: timestamps of the input records to read. None: no bound.

    Raises StreamjoinError, JobUnavailableError if no job answers and `until_ms` is None.
    """
    if plan.matched_side is not None:
        raise RequestError(
            "output verify does not compare the results of a join with a table or with `pick`. The "
            "header streamjoin-match of a result names the record that was chosen, and `streamjoin "
            "explain` shows the records of a key"
        )
    access = kafka_access(plan.bootstrap_servers, plan.security, plan.schema_registry)
    kafka, settings = KafkaAdmin(access), librdkafka_settings(access)
    if plan.has_topic_patterns:
        plan = _with_topics(plan, kafka)
    # In this order the output contains all that the job has delivered, and the inputs contain all
    # that the query had read before it wrote these results.
    progress = read_progress(plan, job, is_required=until_ms is None)
    with kafka.raising_broker_error() as client:
        output = output_part(plan, client, since_ms)
        inputs = input_parts(plan, client, since_ms, until_ms)
        records = inputs.records(plan, settings)
        expected = expected_results(plan, rows, TopicRecords(plan, access.registry), records)
        of_inputs = [read_settings(kafka, part.topic) for part in inputs.parts]
        compacted = {each.topic for each in of_inputs if _may_be_compacted(each)}
        change = None if progress is None else progress.change
        verification = Verification(plan, expected, inputs.span, compacted, change)
        for result in written_results(plan, output, settings):
            verification.add(result)
        output_read = _output_read(plan, kafka, output)
        comparison = verification.compared(inputs.read(plan, compacted), output_read, progress)
    return Report(comparison, list(_lines(plan, inputs, output)))


def _with_topics(plan: JoinPlan, kafka: KafkaAdmin) -> JoinPlan:
    with kafka.raising_broker_error() as client:
        matching = matching_topics(client, plan)
    for side, names in matching.items():
        if not names:
            pattern = plan.side(side).topics
            raise TopicError(f"{side}.topic_pattern: no topic matches {pattern}: correct it")
    return with_topics_of(plan, {side: sorted(names) for side, names in matching.items()})


def read_progress(plan: JoinPlan, job: JobClient, *, is_required: bool) -> Progress | None:
    """None: no job of this join answers."""
    try:
        offsets, query = job.offsets(), job.query()
    except (ConflictError, JobUnavailableError) as error:
        if is_required:
            raise JobUnavailableError(
                f"{error}. Without a job --until is required: the query must have emitted all "
                "results of the records before this time"
            ) from error
        return None
    read: dict[Side, Mapping[str, int]] = {
        side: {
            label: partition.read or 0 for label, partition in offsets.side(side).partitions.items()
        }
        for side in SIDES
    }
    # After a failure, the counts of a batch may be missing.
    has_no_late_rows = query.late_rows == 0 and query.last_failure is None
    return Progress(
        _by_partition(plan, read),
        None if query.watermark is None else to_epoch_ms(query.watermark),
        to_epoch_ms(query.started_at) + CLOCKS_MS if has_no_late_rows else None,
        _before_change(plan, query),
    )


def _before_change(plan: JoinPlan, query: QueryView) -> dict[tuple[Side, str, int], int]:
    before: dict[tuple[Side, str, int], int] = {}
    for change in (query.change, query.filter_change):
        offsets = {} if change is None else _by_partition(plan, change.offsets)
        before |= {place: max(before.get(place, 0), offsets[place]) for place in offsets}
    return before


def _by_partition(
    plan: JoinPlan, offsets: Mapping[Side, Mapping[str, int]]
) -> dict[tuple[Side, str, int], int]:
    """`offsets`: by the labels of the partitions."""
    return {
        (side, *plan.side(side).topics.place_of_label(label)): offset
        for side, of_side in offsets.items()
        for label, offset in of_side.items()
    }


def _may_be_compacted(settings: TopicSettings) -> bool:
    """True also if the settings cannot be read."""
    return settings.error is not None or is_compacted(settings.values)


def _output_read(plan: JoinPlan, kafka: KafkaAdmin, output: TopicPart) -> OutputRead:
    settings, removed_ms = read_settings(kafka, output.topic), output.removed_ms
    # An event time is not the time at which a result was written.
    has_removed = removed_ms is not None and plan.output.has_event_time
    may_lack_any = output.is_hidden or has_removed or _may_be_compacted(settings)
    return OutputRead(removed_ms, may_lack_any, bytes_max(settings.values))


def _lines(plan: JoinPlan, inputs: InputParts, output: TopicPart) -> Iterator[str]:
    yield from inputs.lines
    yield f"{output.topic}: {output.records:,} records"
    for part, schema in (("values", plan.output.schema), ("keys", plan.output.key_schema)):
        if schema is not None:
            yield f"the {part} are not compared: only text and JSON are"
