"""The dialog of `streamjoin init`: options, prompts for what no option sets, and the file."""

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from job.formats.registry import registry_access
from job.kafka.security import KafkaAccess, kafka_access
from job.plan.plan import JoinPlan
from job.proposal.chosen import Choice
from job.proposal.columns import Table, quoted_names
from job.proposal.fields import names_of
from job.proposal.observed import Observer
from job.proposal.prompts import Prompt, ProposalError, Question, answered
from job.proposal.proposal import Proposal, scalar
from job.proposal.registered import registered_table, with_registered_keys
from job.proposal.sample import Sample, sample_of, topic_names
from job.proposal.side_text import time_without_offset
from job.proposal.spec_text import spec_text
from job.proposal.times import RECORD_TIMESTAMP, EventTime
from job.proposal.values import has_schema_ids, reason_for_registry, table_of_sample
from job.proposal.zones import offset_text
from job.semantics.simulate import simulate
from job.semantics.simulation_plan import NotExactError
from job.spec.document import parsed
from job.spec.join_conditions import JoinType
from job.spec.sides import SIDES, Side
from job.spec.spec import kafka_from_document, registry_from_document
from job.spec.value_format import Format
from job.spec.variables import filled
from job.sql.rows import EvaluationError, SqlRows
from job.sql.worker import CostError

_SHOWN_MAX = 20

Report = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """The options of the command. None: a prompt, or the default."""

    bootstrap_servers: str | None = None
    security: Path | None = None
    """File with the block kafka.security."""
    schema_registry: str | None = None
    """URL, or a file with the block schema_registry."""
    left: str | None = None
    right: str | None = None
    left_key: str | None = None
    """Expressions, separated by commas; paired with those of `right_key` in order."""
    right_key: str | None = None
    left_event_time: str | None = None
    right_event_time: str | None = None
    join_type: JoinType | None = None
    name: str | None = None
    output: str | None = None


def write_spec(
    file: Path, options: Options, prompt: Prompt, report: Report, observer: Observer
) -> None:
    """Propose a spec and write it. Raises StreamjoinError; then no file is written."""
    if file.exists():
        raise ProposalError("exists already: name another file, or remove it")
    if not file.parent.is_dir():
        raise ProposalError(f"there is no folder {file.parent}: create it, or name another file")
    if not os.access(file.parent, os.W_OK):
        raise ProposalError(f"this user may not write in {file.parent}: name another file")
    draft, samples = _draft(options, prompt, report, observer)
    proposal = proposed(draft, options, prompt, report, observer)
    plan = observer.plan(proposal)
    _write(file, spec_text(proposal, observer.sql))
    _report_simulation(proposal, plan, samples, report, observer.rows)
    report(f"wrote {file}; next: streamjoin plan {file}, streamjoin topics create {file}")


def proposed(
    draft: Proposal, options: Options, prompt: Prompt, report: Report, observer: Observer
) -> Proposal:
    """The draft with all choices."""
    proposal = Choice(draft, observer, prompt).chosen(
        {"left": options.left_key, "right": options.right_key},
        {"left": options.left_event_time, "right": options.right_event_time},
    )
    _report_evidence(proposal, report)
    topics = draft.topics
    join_type = options.join_type or answered(
        prompt, Question("Join type", "--type", JoinType.INNER.value), _join_type
    )
    proposal = replace(proposal, join_type=join_type)

    def named(text: str) -> Proposal:
        found = replace(proposal, name=text)
        observer.check(found)
        return found

    def written(text: str) -> Proposal:
        found = replace(proposal, output_topic=text)
        observer.check(found)
        return found

    proposal = (
        answered(prompt, Question("Name of the join", "--name", _name(topics)), named)
        if options.name is None
        else named(options.name)
    )
    output = _output(proposal.name, topics)
    return (
        answered(prompt, Question("Output topic", "--output", output), written)
        if options.output is None
        else written(options.output)
    )


def _report_evidence(proposal: Proposal, report: Report) -> None:
    left, right = (", ".join(pair[index] for pair in proposal.keys) for index in (0, 1))
    strength = proposal.strength
    name = "chosen by you" if strength is None else f"{strength.name.lower()} evidence"
    report(f"key: {left} = {right}, {name}: {proposal.evidence}")
    for side in SIDES:
        chosen = proposal.times[side]
        if chosen.zone is not None:
            report(f"{side}: {chosen.sql} has no offset, {_zone(chosen)}: {chosen.zone}")
        elif chosen.sql == RECORD_TIMESTAMP:
            for time in filter(lambda each: each.is_future, proposal.other_times[side]):
                report(f"{side}: not the event time: {time.sql}, {time_without_offset(time)}")
        if side in proposal.compacted:
            report(
                f"{side}: {proposal.topics[side]} is compacted, so it is usually a table: the join "
                "matches no record outside of match_window. See the comments in the spec"
            )


def _zone(time: EventTime) -> str:
    minutes = time.offset_minutes
    if minutes is None:
        return "and is read as UTC, because its zone is not known"
    return "and UTC fits" if minutes == 0 else f"and time_zone {offset_text(minutes)} fits"


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        with suppress(OSError):
            file.unlink()
        raise ProposalError(f"cannot be written: {error.strerror}. Name another file") from error


def _report_simulation(
    proposal: Proposal,
    plan: JoinPlan,
    samples: Mapping[Side, Sample],
    report: Report,
    rows: SqlRows,
) -> None:
    """The bad records of the samples and the number of results that they give."""
    records = {side: proposal.tables[side].simulated for side in SIDES}
    for side in SIDES:
        read, all_ = len(records[side]), len(samples[side].records)
        if read < all_:
            report(f"{side}: {read} of {all_} records of {proposal.topics[side]} can be read")
    try:
        batches = simulate(plan, rows, records["left"], records["right"])
    except (NotExactError, EvaluationError, CostError) as error:
        report(f"not simulated on the samples: {error}")
        return
    for side in SIDES:
        bad = sum((batch.bad_records[side] for batch in batches), start=Counter[str]())
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(bad.items()))
        report(
            f"{side}: {len(records[side])} records of {proposal.topics[side]} read, "
            f"{'none bad' if not bad else f'bad: {reasons}'}"
        )
    report(f"the samples give {sum(len(batch.output) for batch in batches)} results")


def _draft(
    options: Options, prompt: Prompt, report: Report, observer: Observer
) -> tuple[Proposal, dict[Side, Sample]]:
    security = None if options.security is None else _text(options.security)

    def connected(servers: str) -> tuple[str, KafkaAccess]:
        access = _access(servers, security, observer.environment)
        if options.left is None or options.right is None:
            _report_topics(access, report)
        return servers, access

    servers, access = (
        answered(
            prompt, Question("Kafka brokers", "--bootstrap-servers", "localhost:9092"), connected
        )
        if options.bootstrap_servers is None
        else connected(options.bootstrap_servers)
    )
    samples: dict[Side, Sample] = {
        "left": _sample(options.left, Question("Left topic", "--left"), access, prompt),
        "right": _sample(options.right, Question("Right topic", "--right"), access, prompt),
    }
    registry, tables = _tables(samples, options, prompt, observer)
    for side in SIDES:
        report(f"{side}: {_found(tables[side])}")
    topics = {side: samples[side].topic for side in SIDES}
    draft = draft_of(topics, tables, observer, servers, security, registry)
    rates = {side: samples[side].rate for side in SIDES}
    compacted = frozenset(side for side in SIDES if samples[side].is_compacted)
    return replace(draft, rates=rates, compacted=compacted), samples


def _found(table: Table) -> str:
    """The rows of a side in one line."""
    kind = "" if table.format is Format.JSON else f" in {table.format}"
    envelope = "" if table.changes is None else " in envelopes of Debezium"
    return f"{len(table.rows)} records{kind}{envelope}, columns {', '.join(table.columns)}"


def _sample(topic: str | None, question: Question, access: KafkaAccess, prompt: Prompt) -> Sample:
    if topic is not None:
        return sample_of(topic, access)
    return answered(prompt, question, lambda text: sample_of(text, access))


def draft_of(
    topics: Mapping[Side, str],
    tables: Mapping[Side, Table],
    observer: Observer,
    servers: str = "localhost:9092",
    security: str | None = None,
    registry: str | None = None,
) -> Proposal:
    """A proposal whose keys and event times are not chosen yet."""
    whole = EventTime(RECORD_TIMESTAMP, [])
    return Proposal(
        name="draft",
        bootstrap_servers=servers,
        security=security,
        registry=registry,
        topics=topics,
        tables=tables,
        times=dict.fromkeys(SIDES, whole),
        keys=[],
        join_type=JoinType.INNER,
        output_topic="draft",
        quoted=quoted_names(
            (name for table in tables.values() for name in names_of(table)), observer.sql
        ),
    )


def _access(servers: str, security: str | None, environment: Mapping[str, str]) -> KafkaAccess:
    """Raises SpecError for servers or a security block that a spec cannot have."""
    block = {} if security is None else {"security": filled(parsed(security), environment)}
    kafka = {"bootstrap_servers": filled({"servers": servers}, environment)["servers"], **block}
    spec = kafka_from_document(kafka)
    return kafka_access(spec.bootstrap_servers, spec.security)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProposalError(f"{file} cannot be read as text in UTF-8: {error}") from error


def _report_topics(access: KafkaAccess, report: Report) -> None:
    names, written = topic_names(access)
    report(f"topics: {_listed(names) or 'none'}")
    if written:
        report(f"by their names commit and dead-letter topics of joins: {_listed(written)}")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_MAX} more" if len(names) > _SHOWN_MAX else ""
    return f"{', '.join(names[:_SHOWN_MAX])}{more}"


def _tables(
    samples: Mapping[Side, Sample],
    options: Options,
    prompt: Prompt,
    observer: Observer,
) -> tuple[str | None, dict[Side, Table]]:
    """The block schema_registry, if a registry was read, and the table of each topic."""
    if options.schema_registry is not None:
        return _tables_with_registry(options.schema_registry, samples, observer)
    reasons = [reason_for_registry(samples[side]) for side in SIDES]
    reason = next((each for each in reasons if each is not None), None)
    if reason is None:
        return None, {side: table_of_sample(samples[side]) for side in SIDES}
    return answered(
        prompt,
        Question("Schema registry, a URL", "--schema-registry", None, reason),
        lambda text: _tables_with_registry(text, samples, observer),
    )


def _tables_with_registry(
    text: str, samples: Mapping[Side, Sample], observer: Observer
) -> tuple[str | None, dict[Side, Table]]:
    """`text`: a URL, or the name of a file."""
    is_url = text.startswith(("http://", "https://"))
    block = f"url: {scalar(text)}" if is_url else _text(Path(text))
    access = registry_access(registry_from_document(filled(parsed(block), observer.environment)))
    assert access is not None
    tables: dict[Side, Table] = {}
    for side in SIDES:
        sample = samples[side]
        table = (
            registered_table(sample, side, access)
            if has_schema_ids(sample)
            else table_of_sample(sample)
        )
        tables[side] = with_registered_keys(table, sample, side, access, observer.sql)
    return block, tables


def _join_type(text: str) -> JoinType:
    if text not in list(JoinType):
        raise ProposalError(f"{text} is not a join type: use {', '.join(JoinType)}")
    return JoinType(text)


def _name(topics: Mapping[Side, str]) -> str:
    """A legal name of a join from the names of its topics."""
    text = re.sub(r"[^a-z0-9]+", "_", f"{topics['left']}_{topics['right']}".lower()).strip("_")
    return (text if text[:1].isalpha() else f"join_{text}")[:100]


def _output(name: str, topics: Mapping[Side, str]) -> str:
    return f"{name}.out" if name in topics.values() else name
