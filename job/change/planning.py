"""Plans the spec of a change that a client requests."""

from collections.abc import Mapping
from dataclasses import dataclass

from job.change.sent_spec import PlannedSpec, WrittenSpec, sent_spec
from job.plan.planner import join_plan
from job.sql.questions import SqlQuestions


@dataclass(frozen=True)
class PlanRequest:
    text: str
    running: WrittenSpec
    environment: Mapping[str, str]
    """The variables of the running spec. The new one may contain no others."""
    state_partitions: int


def planned(request: PlanRequest, sql: SqlQuestions) -> PlannedSpec:
    """Raises SpecError as `sent_spec` and `join_plan`, RegistryError or SecurityError if the schema
    registry does not answer."""
    written = sent_spec(request.text, request.running, request.environment)
    readers = {}
    if written.spec.schema_registry is not None:
        # A join of JSON loads no packages of other formats.
        from job.formats.pinning import reader_schemas

        readers = reader_schemas(written.spec, sql)
    plan = join_plan(written.spec, sql, state_partitions=request.state_partitions, readers=readers)
    return PlannedSpec(written, plan)
