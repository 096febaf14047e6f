"""The plan of a side that is a table."""

from job.plan.problems import Problems, optional
from job.plan.side_plan import TablePlan
from job.spec.expressions import Scope, predicate
from job.spec.side_spec import SideSpec
from job.spec.sides import Side
from job.spec.spec import JoinSpec


def has_table(spec: JoinSpec) -> bool:
    return any(side.table is not None for side in (spec.left, spec.right))


def table_plan(problems: Problems, written: SideSpec, side: Side, scope: Scope) -> TablePlan | None:
    """None: the side is a stream."""
    if written.table is None:
        return None
    field = f"{side}.table.delete"
    delete = optional(problems, predicate, written.table.delete, scope, field)
    if delete is not None and delete.can_fail:
        message = (
            "can fail on a record (a cast, a division, an overflow): write it so that it cannot "
            "fail, e.g. with try_cast"
        )
        problems.add(field, delete.text, message)
    return TablePlan(written.table.version, delete, written.table.expected_keys)
