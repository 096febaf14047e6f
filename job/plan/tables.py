"""The plan of a side that is a table."""

from job.plan.problems import CAN_FAIL, Problems, optional
from job.plan.side_plan import TablePlan
from job.spec.expressions import Scope, predicate
from job.spec.side_spec import SideSpec
from job.spec.sides import Side
from job.spec.spec import JoinSpec
from job.spec.table import BeforeFirst


def has_table(spec: JoinSpec) -> bool:
    return any(side.table is not None for side in (spec.left, spec.right))


def table_plan(problems: Problems, written: SideSpec, side: Side, scope: Scope) -> TablePlan | None:
    """None: the side is a stream."""
    if written.table is None:
        return None
    field = f"{side}.table.delete"
    delete = optional(problems, predicate, written.table.delete, scope, field)
    if delete is not None and delete.can_fail:
        problems.add(field, delete.text, CAN_FAIL)
    return TablePlan(
        version=written.table.version,
        delete=delete,
        expected_keys=written.table.expected_keys,
        before_first=written.table.before_first or BeforeFirst.NONE,
        retention=written.table.retention,
        is_final=written.table.final,
        wait=written.table.wait,
    )
