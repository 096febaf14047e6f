"""The samples as a job reads them: the keys and event times of a proposed spec."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from job.errors import SpecError
from job.formats.pinning import reader_schemas
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan
from job.plan.sql_problems import read_spec
from job.proposal.columns import Table
from job.proposal.evidence import Evidence, Keys, Times
from job.proposal.keys import KeyField
from job.proposal.proposal import Proposal
from job.proposal.spec_text import spec_text
from job.proposal.times import RECORD_TIMESTAMP, EventTime
from job.semantics.simulated_side import DecodedRow, SideReader
from job.spec.join_conditions import JoinType
from job.spec.sides import SIDES, Side
from job.spec.spec import spec_from_yaml
from job.sql.questions import SqlQuestions
from job.sql.rows import SqlRows

Rows = Sequence[DecodedRow | None]
"""None: a bad record."""


@dataclass(frozen=True)
class Observer:
    """Plans proposals and reads the samples by the plans."""

    environment: Mapping[str, str]
    sql: SqlQuestions
    rows: SqlRows

    def plan(self, proposal: Proposal) -> JoinPlan:
        """Raises SpecError if the spec is invalid."""
        spec = read_spec(spec_text(proposal, self.sql), self.environment, self.sql)
        readers = reader_schemas(spec, self.sql)
        return join_plan(spec, self.sql, state_partitions=1, readers=readers)

    def check(self, proposal: Proposal) -> None:
        """Raises SpecError if the spec is invalid, whatever its SQL is."""
        spec_from_yaml(spec_text(proposal, self.sql), self.environment)

    def observed(self, proposal: Proposal) -> Proposal:
        """The proposal with the evidence for it and the disorder of the rows."""
        plan = self.plan(proposal)
        read = {side: self._read(plan, side, proposal.tables[side]) for side in SIDES}
        left, right = read["left"], read["right"]
        return replace(
            proposal,
            evidence=Evidence(_keys(left), _times(left), _keys(right), _times(right)),
            disorder_us={side: _disorder(rows) for side, rows in read.items()},
        )

    def event_time(self, draft: Proposal, side: Side, time: EventTime) -> EventTime:
        """The event time with the times that its expression gives. Raises SpecError."""
        _, read = self._read_alone(draft, side, ["record_offset"], time)
        return replace(time, times=list(_times(read)))

    def key_field(self, draft: Proposal, side: Side, sql: str) -> KeyField:
        """The values of the expression. Raises SpecError."""
        whole = EventTime(RECORD_TIMESTAMP, [])
        plan, read = self._read_alone(draft, side, [sql], whole)
        texts = [None if row is None or row.has_null_key else row.key_text for row in read]
        return KeyField(sql, (), plan.side(side).key[0].type, texts, is_fixed=True)

    def _read_alone(
        self, draft: Proposal, side: Side, key: Sequence[str], time: EventTime
    ) -> tuple[JoinPlan, Rows]:
        """Reads one side, in a join of its topic with itself."""
        table, topic = draft.tables[side], draft.topics[side]
        alone = replace(
            draft,
            topics=dict.fromkeys(SIDES, topic),
            tables=dict.fromkeys(SIDES, table),
            times=dict.fromkeys(SIDES, time),
            keys=[(part, part) for part in key],
            join_type=JoinType.LEFT_SEMI,
        )
        try:
            plan = self.plan(alone)
        except SpecError as error:
            own = [problem for problem in error.problems if problem.field.startswith(side)]
            raise SpecError(own or error.problems) from error
        return plan, self._read(plan, side, table)

    def _read(self, plan: JoinPlan, side: Side, table: Table) -> Rows:
        reader = SideReader(plan, side, self.rows)
        try:
            rows = list(reader.read(table.records))
            return [row if isinstance(row, DecodedRow) else None for row in rows]
        finally:
            reader.close()


def _keys(rows: Rows) -> Keys:
    return [None if row is None or row.has_null_key else row.key for row in rows]


def _times(rows: Rows) -> Times:
    return [None if row is None else row.event_time_us for row in rows]


def _disorder(rows: Rows) -> int:
    newest: dict[int, int] = {}
    behind = 0
    for row in rows:
        if row is not None:
            first = newest.setdefault(row.record.partition, row.event_time_us)
            behind = max(behind, first - row.event_time_us)
            newest[row.record.partition] = max(first, row.event_time_us)
    return behind
