"""The filter of a side, and the columns of the value that an expression reads."""

from job.plan.envelope_sql import bad_operations
from job.plan.problems import Problems, optional
from job.spec.expressions import Expression, Scope, conjunction, predicate
from job.spec.side_spec import SideSpec
from job.spec.sides import Side
from job.spec.value_schema import ValueSchema


def side_filter(
    problems: Problems, written: SideSpec, side: Side, scope: Scope
) -> Expression | None:
    """The filter of the spec, and that of the operations."""
    found = optional(problems, predicate, written.filter, scope, f"{side}.filter")
    if written.envelope is None:
        return found
    bad = bad_operations(is_table=written.table is not None)
    names = ", ".join(f"'{operation}'" for operation in [*written.read_operations, *bad])
    read = predicate(f"record_operation IN ({names})", scope, f"{side}.operations")
    return conjunction([read, *(found.conjuncts if found else ())])


def fields_read(
    part: Expression | None, side: Side, schema: ValueSchema, scope: Scope
) -> tuple[tuple[str, ...], ...]:
    """Columns of the value in an expression, with the names of their fields."""
    if part is None:
        return ()
    _, names, _ = scope.sql.names(scope.expanded(part.sql), is_of_spec=False)
    found = {(name.parts[0].removeprefix(f"{side}_"), *name.parts[1:]) for name in names}
    return tuple(sorted(each for each in found if schema.column(each[0]) is not None))
