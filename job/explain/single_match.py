"""Sentences about joins in which a row has at most one match: with a table, or with `pick`."""

from job.explain import cause_types as kinds
from job.plan.plan import JoinPlan
from job.spec.sides import Side


def not_in_table(because: kinds.NotInTable | kinds.NoVersion, other: str) -> str:
    """`other`: the place of the record of the table."""
    if isinstance(because, kinds.NotInTable):
        if because.has_deleted:
            return f"{other}, the newest record of its key in the table, has deleted the row"
        newest = f"{other}, the newest record of the key, was read later, or has deleted the row"
        return f"the table had no row of its key then: {newest}"
    valid = f"{other}, the version of its key at its event time,"
    match because.reason:
        case "deleted":
            return f"{valid} deletes the key"
        case "later":
            return f"all versions of its key are later: {other} is the first one"
        case "ended":
            return f"{valid} was older than table.retention"
        case "unread":
            return f"{valid} was read later"


def of_table(
    cause: kinds.InTable | kinds.DeletedKey, side: Side, read: str | None, *, is_as_of: bool
) -> str:
    """What a record has done to the table on `side`. `read`: the part of the output topic in which
    its results were searched. None: all results are known."""
    if isinstance(cause, kinds.DeletedKey):
        if is_as_of:
            return "deletes its key in the table from its event time on"
        return "deleted the row of its key in the table"
    results = "no result with it was found"
    if cause.results:
        counted = "1 result" if cause.results == 1 else f"{cause.results:,} results"
        results = f"{counted} with it {'was' if cause.results == 1 else 'were'} found"
    if read is not None:
        results += f" in what was read of {read}"
    if cause.is_gone:
        was = "a version" if is_as_of else "the row"
        return f"was {was} of its key in the table, and is not any more; {results}"
    if is_as_of:
        until = "is the newest version of its key in the table"
        if cause.replaced_by is not None:
            until = f"is the version of its key in the table until {side} {cause.replaced_by}"
        return f"{until}; {results}"
    if cause.replaced_by is None:
        return f"is the row of its key in the table; {results}"
    did = "deleted" if cause.is_deleted else "replaced"
    return (
        f"was the row of its key in the table until {side} {cause.replaced_by} {did} it; {results}"
    )


def at_once(plan: JoinPlan, result: str | None, why: str) -> str:
    """Of a row of a stream without a match in the table. `result`: None: it has none."""
    outcome = f"join type {plan.join_type} emits no result for it"
    if result is not None:
        outcome = f"was emitted as unmatched: {result}"
    when = "when it was read"
    if plan.is_final:
        when = "when the watermark had passed it"
    elif plan.stream_waits:
        when = "until the watermark had passed it, and it had waited"
    return f"had no match {when}, and {outcome}; {why}"


def waits(cause: kinds.WaitsForPick | kinds.WaitsForVersion, plan: JoinPlan, until: str) -> str:
    """`until`: the watermark at which its match window, or its version, is complete."""
    if isinstance(cause, kinds.WaitsForVersion) and not plan.is_final:
        return (
            "has found no row of its key in the table, and waits for one until the watermark "
            f"passes {until}"
        )
    if isinstance(cause, kinds.WaitsForVersion):
        return (
            f"waits until the watermark passes {until}; then its result has the version of its key "
            "that is valid at its event time"
        )
    return (
        f"matches right {cause.other} and waits until the watermark passes {until}; then the "
        f"{plan.pick} match is its result"
    )


def not_picked(cause: kinds.NotPicked, plan: JoinPlan) -> str:
    if cause.is_decided:
        return f"matches left {cause.other}, whose result has another row: the {plan.pick} match"
    return (
        f"matches left {cause.other}, whose {plan.pick} match is not chosen yet, or was not found"
    )
