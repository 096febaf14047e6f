"""Sentences about records in a join with a table. Pure."""

from job.explain import cause_types as kinds
from job.spec.sides import Side


def not_in_table(newest: str) -> str:
    """`newest`: the place of the newest record of the key."""
    return (
        f"the table had no row of its key then: {newest}, the newest record of the key, was read "
        "later, or has deleted the row"
    )


def of_table(cause: kinds.InTable | kinds.DeletedKey, side: Side) -> str:
    """What a record has done to the table on `side`."""
    if isinstance(cause, kinds.DeletedKey):
        return "deleted the row of its key in the table, if there was one"
    results = "no result with it was found"
    if cause.results:
        results = f"{cause.results:,} result{'s' if cause.results > 1 else ''} with it were found"
        results = results.replace("1 result with it were", "1 result with it was")
    if cause.replaced_by is None:
        return f"is the row of its key in the table; {results}"
    did = "deleted" if cause.is_deleted else "replaced"
    return (
        f"was the row of its key in the table until {side} {cause.replaced_by} {did} it; {results}"
    )
