"""`streamjoin check`: a plan compared with its subjects, topics, rights and newest records."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from job.check import subjects
from job.check.finding import Finding, Level, info, problem, warning
from job.check.reading import read_records
from job.check.recorded import RecordedQuery
from job.check.sampled import Measured, findings, measured, overlap
from job.delivery.commit_topic import check_commit_topic
from job.errors import BrokerError, SecurityError, StreamjoinError, TopicError
from job.kafka.acls import missing_rights
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.preflight import TopicsSnapshot, check_found_topics, find_topics
from job.kafka.security import KafkaAccess
from job.kafka.topic_patterns import with_matching_topics
from job.kafka.topic_settings import TopicSettings, is_compacted, read_settings
from job.plan.capacity import AvailableResources, expected_load, stored_for
from job.plan.explain_load import warnings as load_warnings
from job.plan.explain_summary import state_text
from job.plan.plan import JoinPlan
from job.plan.side_plan import SidePlan
from job.proposal.sample import RECORDS_MAX, sample_of
from job.spec.durations import duration_text, milliseconds
from job.spec.sides import SIDES, Side
from job.sql.questions import SqlQuestions
from job.sql.rows import SqlRows

_LEVELS: tuple[Level, ...] = ("problem", "warning", "info")
_TITLES: Mapping[Level, str] = {"problem": "PROBLEM", "warning": "warning", "info": "ok"}


@dataclass
class Report:
    findings: list[Finding] = field(default_factory=list)
    measured: dict[Side, Measured] = field(default_factory=dict)

    @property
    def has_problems(self) -> bool:
        return any(finding.level == "problem" for finding in self.findings)

    @property
    def lines(self) -> Iterator[str]:
        """Problems first, then warnings."""
        for level in _LEVELS:
            for finding in self.findings:
                if finding.level == level:
                    yield f"{_TITLES[level]:<9}{finding.about}: {finding.text}"
        ready = "not ready" if self.has_problems else "ready"
        yield f"{ready}: {self._count('problem')}, {self._count('warning')}"

    def _count(self, level: Level) -> str:
        count = sum(finding.level == level for finding in self.findings)
        return f"{count} {level}{'' if count == 1 else 's'}"

    @property
    def as_json(self) -> dict[str, object]:
        return {
            "ready": not self.has_problems,
            "findings": [vars(finding) for finding in self.findings],
            "sides": {
                side: {
                    "records": each.records,
                    "bad_records": each.bad,
                    "records_per_second": each.rate,
                    "disorder_seconds": each.disorder_ms / 1000,
                    "late_rows": each.late,
                    "keys": len(each.keys),
                }
                for side, each in self.measured.items()
            },
        }


def check(
    plan: JoinPlan,
    access: KafkaAccess,
    sql: SqlQuestions,
    rows: SqlRows,
    resources: AvailableResources,
) -> Report:
    """Changes nothing in Kafka and the checkpoint, and does not disturb a running job."""
    report = Report(list(subjects.findings(plan.output.schemas, access.registry)))
    recorded = RecordedQuery(plan, sql, access.registry)
    report.findings += recorded.findings
    try:
        kafka = KafkaAdmin(access)
        if plan.has_topic_patterns:
            plan = with_matching_topics(plan, recorded.frozen, kafka)
        sizes, error = find_topics(plan, kafka)
        if error is None:
            topics = check_found_topics(plan, kafka, sizes)
            plan = topics.plan_with_partitions(plan)
            report.findings += _rights(plan, kafka)
            report.findings += _written_topics(topics)
            report.findings += recorded.of_topics(plan, kafka)
            report.findings += _slots(plan)
        elif isinstance(error, SecurityError):
            raise error
        else:
            report.findings.append(problem("topics", str(error)))
    except StreamjoinError as error:
        report.findings.append(problem("topics", str(error)))
        return report
    for side in SIDES:
        if sizes.partitions.keys() >= set(plan.side(side).topics.names):
            report.findings += _input_settings(plan, plan.side(side), sizes.partitions, kafka)
            _add_sample(report, plan, side, access, rows)
    report.findings += _both_sides(plan, report.measured, resources)
    return report


def _rights(plan: JoinPlan, kafka: KafkaAdmin) -> Iterator[Finding]:
    for what, grant in missing_rights(plan, kafka.access):
        text = f"access is denied; grant it with\n  {grant.command(kafka.access)}"
        yield problem(what, text)
    try:
        check_commit_topic(plan, kafka)
    except StreamjoinError as error:
        yield problem(plan.output.commit_topic, str(error))


def _slots(plan: JoinPlan) -> Iterator[Finding]:
    if plan.real_time is not None:
        left, right, state = plan.left.partitions, plan.right.partitions, plan.state_partitions
        yield info(
            "task slots",
            f"an interval needs {plan.interval_tasks} at the same time: {left} for the left "
            f"topic, {right} for the right one, {state} for the state. With a local master the "
            "job provides them; a cluster needs as many cores, and one more for lookups",
        )


def _written_topics(topics: TopicsSnapshot) -> Iterator[Finding]:
    yield from _written(topics, "output", topics.output)
    if topics.dead_letter is not None:
        yield from _written(topics, "dead letters", topics.dead_letter)


def _written(topics: TopicsSnapshot, role: str, settings: TopicSettings) -> Iterator[Finding]:
    yield info(settings.topic, f"{role}, {_partitions(topics.partitions[settings.topic])}")
    if settings.error is not None:
        yield _unread(settings)


def _unread(settings: TopicSettings) -> Finding:
    return warning(
        settings.topic,
        f"its settings cannot be read ({settings.error}): grant DescribeConfigs to check them",
    )


def _input_settings(
    plan: JoinPlan, side: SidePlan, partitions: Mapping[str, int], kafka: KafkaAdmin
) -> Iterator[Finding]:
    for name in side.topics.names:
        yield info(name, f"{side.side} input, {_partitions(partitions[name])}")
        try:
            settings = read_settings(kafka, name)
        except BrokerError as error:
            yield warning(name, str(error))
            continue
        if settings.error is not None:
            yield _unread(settings)
        if side.table is not None:
            yield from table_findings(name, settings.values, is_as_of=side.table.is_as_of)
        elif is_compacted(settings.values):
            yield warning(
                name,
                "is compacted: Kafka removes older records of a key, possibly before they are "
                "read. A row joins only within the window, however long Kafka keeps its record",
            )
        yield from _retention(plan, side, name, settings)


def table_findings(
    topic: str, settings: Mapping[str, str], *, is_as_of: bool = False
) -> Iterator[Finding]:
    """What a topic removes of a table. `settings`: of the topic."""
    if is_as_of and is_compacted(settings):
        lag = duration_text(timedelta(milliseconds=int(settings.get("min.compaction.lag.ms", 0))))
        yield warning(
            topic,
            "is compacted, and its table has versions (as_of): Kafka removes older versions of a "
            f"key after {lag} (min.compaction.lag.ms), and a query that starts with empty state "
            "does not have them for older rows; set min.compaction.lag.ms to the longest time that "
            "you read again, or write `before_first: first`",
        )
    if "delete" not in settings.get("cleanup.policy", "delete"):
        return
    kept_ms = int(settings.get("retention.ms", -1))
    if kept_ms >= 0:
        yield warning(
            topic,
            f"is a table, and Kafka removes its records after "
            f"{duration_text(timedelta(milliseconds=kept_ms))} (retention.ms): a query that starts "
            "with empty state misses the keys that were not written again since; set "
            "cleanup.policy=compact",
        )


def _retention(
    plan: JoinPlan, side: SidePlan, name: str, settings: TopicSettings
) -> Iterator[Finding]:
    kept_ms, stored = int(settings.values.get("retention.ms", -1)), stored_for(plan, side)
    is_removed = "delete" in settings.values.get("cleanup.policy", "delete")
    if is_removed and stored is not None and 0 <= kept_ms < milliseconds(stored):
        yield warning(
            name,
            f"retention.ms is {duration_text(timedelta(milliseconds=kept_ms))}, shorter than the "
            f"{duration_text(stored)} for which its rows are stored: a change or a reset cannot "
            "read them again, and a longer stop loses records; increase retention.ms",
        )


def _add_sample(
    report: Report, plan: JoinPlan, side: Side, access: KafkaAccess, rows: SqlRows
) -> None:
    of_side = plan.side(side)
    names, samples = of_side.topics.names, []
    for name in names:
        try:
            samples.append(sample_of(name, access, RECORDS_MAX // len(names)))
        except TopicError:
            report.findings.append(info(name, "has no records"))
        except BrokerError as error:
            report.findings.append(warning(name, str(error)))
    if not samples:
        return
    records = [replace(each, topic=of.topic) for of in samples for each in of.records]
    rates = [sample.rate for sample in samples]
    known = [rate for rate in rates if rate is not None]
    try:
        read = read_records(plan, side, rows, access.registry, records)
    except StreamjoinError as error:
        report.findings.append(problem(of_side.topic, str(error)))
        return
    found = report.measured[side] = measured(
        of_side, read, rate=sum(known) if len(known) == len(rates) else None
    )
    report.findings += findings(of_side, read, found)
    if found.are_all_bad:
        report.findings.append(
            problem(of_side.topic, f"all {found.records} records of the sample are bad")
        )


def _both_sides(
    plan: JoinPlan, found: Mapping[Side, Measured], resources: AvailableResources
) -> Iterator[Finding]:
    if len(found) < len(SIDES):
        return
    shared = overlap(found["left"], found["right"], "keys")
    yield from () if shared is None else (shared,)
    measured_plan = plan.with_sides(
        lambda side: replace(side, expected_rate=found[side.side].rate or side.expected_rate)
    )
    left, right = measured_plan.left, measured_plan.right
    if (load := expected_load(measured_plan)) is not None:
        yield info(
            "estimate",
            f"at {left.expected_rate:,.3g} left and {right.expected_rate:,.3g} right records/s, "
            f"the state is {state_text(measured_plan, load)}",
        )
        yield from (warning("estimate", text) for text in load_warnings(load, resources))


def _partitions(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"
