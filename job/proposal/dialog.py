"""The dialog of `streamjoin init`: options, prompts for what no option sets, and the file."""

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from job.errors import StreamjoinError
from job.formats.pinning import reader_schemas
from job.formats.registry import registry_access
from job.kafka.security import KafkaAccess, kafka_access
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan
from job.proposal.choices import RECORD_TIMESTAMP, EventTime, event_times, key_pairs
from job.proposal.columns import Table, quoted_names, table_of
from job.proposal.registered import has_registered_schema, registered_table
from job.proposal.sample import Sample, sample_of, topic_names
from job.proposal.spec_text import Proposal, scalar, spec_text
from job.semantics.simulate import simulate
from job.semantics.simulation_plan import NotExactError
from job.spec.document import parsed
from job.spec.join_conditions import JoinType
from job.spec.sides import SIDES, Side
from job.spec.spec import kafka_from_document, registry_from_document, spec_from_yaml
from job.spec.variables import filled
from job.sql.questions import SqlQuestions
from job.sql.rows import EvaluationError, SqlRows
from job.sql.worker import CostError

_SHOWN_MAX = 20

Prompt = Callable[[str, str | None], str]
"""Returns the input for a text with a default. Raises StreamjoinError without prompts and without a
default."""
Report = Callable[[str], None]


class ProposalError(StreamjoinError):
    """No spec can be proposed."""

    code = "proposal"


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
    """Names of columns, separated by commas; paired with those of `right_key` in order."""
    right_key: str | None = None
    left_event_time: str | None = None
    right_event_time: str | None = None
    join_type: JoinType | None = None
    name: str | None = None
    output: str | None = None


def write_spec(
    file: Path,
    options: Options,
    prompt: Prompt,
    report: Report,
    environment: Mapping[str, str],
    sql: SqlQuestions,
    rows: SqlRows,
) -> None:
    """Propose a spec and write it. Raises StreamjoinError; then no file is written."""
    if file.exists():
        raise ProposalError("exists already: name another file, or remove it")
    if not file.parent.is_dir():
        raise ProposalError(f"there is no folder {file.parent}: create it, or name another file")
    if not os.access(file.parent, os.W_OK):
        raise ProposalError(f"this user may not write in {file.parent}: name another file")
    proposal, samples = _proposal(options, prompt, report, environment, sql, rows)
    text = spec_text(proposal)
    spec = spec_from_yaml(text, environment)
    plan = join_plan(spec, sql, state_partitions=1, readers=reader_schemas(spec, sql))
    _write(file, text)
    if any(table.reader is not None for table in proposal.tables.values()):
        _report_read(proposal, samples, report)
    else:
        _report_simulation(plan, samples, report, rows)
    report(f"wrote {file}; next: streamjoin plan {file}, streamjoin topics create {file}")


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        with suppress(OSError):
            file.unlink()
        raise ProposalError(f"cannot be written: {error.strerror}. Name another file") from error


def _report_read(proposal: Proposal, samples: Mapping[Side, Sample], report: Report) -> None:
    """`simulate` reads JSON only, so that these samples are not joined."""
    for side in SIDES:
        read, sample = len(proposal.tables[side].rows), samples[side]
        report(f"{side}: {read} of {len(sample.records)} records of {sample.topic} can be read")


def _report_simulation(
    plan: JoinPlan, samples: Mapping[Side, Sample], report: Report, rows: SqlRows
) -> None:
    """The bad records of the samples and the number of results that they give."""
    try:
        batches = simulate(plan, rows, samples["left"].records, samples["right"].records)
    except (NotExactError, EvaluationError, CostError) as error:
        report(f"not simulated on the samples: {error}")
        return
    for side in SIDES:
        bad = sum((batch.bad_records[side] for batch in batches), start=Counter[str]())
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(bad.items()))
        report(
            f"{side}: {len(samples[side].records)} records of {samples[side].topic} read, "
            f"{'none bad' if not bad else f'bad: {reasons}'}"
        )
    report(f"the samples give {sum(len(batch.output) for batch in batches)} results")


def _proposal(
    options: Options,
    prompt: Prompt,
    report: Report,
    environment: Mapping[str, str],
    sql: SqlQuestions,
    rows: SqlRows,
) -> tuple[Proposal, dict[Side, Sample]]:
    servers = options.bootstrap_servers or prompt("Kafka brokers", "localhost:9092")
    security = None if options.security is None else _text(options.security)
    access = _access(servers, security, environment)
    topics = _topics(options, access, prompt, report)
    samples: dict[Side, Sample] = {side: sample_of(topics[side], access) for side in SIDES}
    registry, tables = _tables(samples, options, prompt, environment)
    for side in SIDES:
        report(
            f"{side}: {len(tables[side].rows)} records, columns {', '.join(tables[side].columns)}"
        )
    keys = _keys(options, tables, prompt)
    times: dict[Side, EventTime] = {
        "left": _event_time("left", options.left_event_time, tables["left"], prompt, rows),
        "right": _event_time("right", options.right_event_time, tables["right"], prompt, rows),
    }
    join_type = options.join_type or _join_type(prompt("Join type", JoinType.INNER.value))
    name = options.name or prompt("Name of the join", _name(topics))
    output = options.output or prompt("Output topic", _output(name, topics))
    return Proposal(
        name,
        servers,
        security,
        registry,
        topics,
        tables,
        times,
        keys,
        join_type,
        output,
        quoted_names((name for table in tables.values() for name in table.columns), sql),
    ), samples


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


def _topics(
    options: Options, access: KafkaAccess, prompt: Prompt, report: Report
) -> dict[Side, str]:
    if options.left is None or options.right is None:
        names = topic_names(access)
        more = f" and {len(names) - _SHOWN_MAX} more" if len(names) > _SHOWN_MAX else ""
        report(f"topics: {', '.join(names[:_SHOWN_MAX]) or 'none'}{more}")
    return {
        "left": options.left or prompt("Left topic", None),
        "right": options.right or prompt("Right topic", None),
    }


def _tables(
    samples: Mapping[Side, Sample],
    options: Options,
    prompt: Prompt,
    environment: Mapping[str, str],
) -> tuple[str | None, dict[Side, Table]]:
    """The block schema_registry, if a topic needs it, and the table of each topic."""
    registered = {side: has_registered_schema(samples[side]) for side in SIDES}
    if not any(registered.values()):
        return None, {side: _json_table(samples[side]) for side in SIDES}
    text = options.schema_registry or prompt("Schema registry, a URL", None)
    is_url = text.startswith(("http://", "https://"))
    block = f"url: {scalar(text)}" if is_url else _text(Path(text))
    access = registry_access(registry_from_document(filled(parsed(block), environment)))
    assert access is not None
    return block, {
        side: registered_table(samples[side], side, access)
        if registered[side]
        else _json_table(samples[side])
        for side in SIDES
    }


def _json_table(sample: Sample) -> Table:
    table = table_of(sample.records)
    if table.columns:
        return table
    raise ProposalError(
        f"topic {sample.topic} has no value that is a JSON object with fields among its newest "
        f"{len(sample.records)} records: a join reads JSON objects, Avro or Protobuf"
    )


def _keys(options: Options, tables: Mapping[Side, Table], prompt: Prompt) -> list[tuple[str, str]]:
    given = {"left": options.left_key, "right": options.right_key}
    names = {
        side: _names(text, tables[side], f"{side} key") for side in SIDES if (text := given[side])
    }
    pairs = [
        pair
        for pair in key_pairs(tables["left"], tables["right"])
        if names.get("left", [pair.left]) == [pair.left]
        and names.get("right", [pair.right]) == [pair.right]
    ]
    if "left" not in names:
        text = prompt("Key of the left side", pairs[0].left if pairs else None)
        names["left"] = _names(text, tables["left"], "left key")
    if "right" not in names:
        likely = [pair.right for pair in pairs if [pair.left] == names["left"]]
        text = prompt("Key of the right side", likely[0] if likely else None)
        names["right"] = _names(text, tables["right"], "right key")
    if len(names["left"]) != len(names["right"]):
        raise ProposalError(
            f"the left key has {len(names['left'])} columns and the right key "
            f"{len(names['right'])}: columns are paired in order, so both need the same number"
        )
    return list(zip(names["left"], names["right"], strict=True))


def _names(text: str, table: Table, what: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in table.columns:
            raise ProposalError(
                f"the {what} {name} is not a column: the records have {', '.join(table.columns)}"
            )
    return names


def _event_time(
    side: Side, chosen: str | None, table: Table, prompt: Prompt, rows: SqlRows
) -> EventTime:
    candidates = {candidate.column: candidate for candidate in event_times(table, rows)}
    name = chosen or prompt(f"Event time of the {side} side", next(iter(candidates)))
    if name not in candidates:
        raise ProposalError(
            f"the {side} event time {name} is not possible: in every record of the sample it must "
            "be an ISO-8601 time or epoch milliseconds, at most an hour ahead of the record's "
            f"timestamp. Possible: {', '.join(candidates)}"
            f"{'' if len(candidates) > 1 else f' ({RECORD_TIMESTAMP} is the timestamp in Kafka)'}"
        )
    return candidates[name]


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
