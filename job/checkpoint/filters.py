"""Records the filters by which a query reads, and finds those of earlier records."""

from collections.abc import Mapping, Sequence

from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.documents import read_document, write_document
from job.event_time.filters import EarlierFilters, Filter, Filters
from job.plan.plan import JoinPlan
from job.spec.expressions import Expression

_EARLIER_MAX = 20


def record_filters(checkpoint: Checkpoint, plan: JoinPlan, now_ms: int) -> EarlierFilters | None:
    """Called before each start of the query. Returns the last filters that were changed. None: no
    filter has changed since the checkpoint began."""
    present, known = _filters(plan), read_document(checkpoint.folder, Filters)
    if known is not None and known.present == present:
        return _last(known)
    earlier = [] if known is None else known.earlier
    last = checkpoint.last_batch_id
    batch = None if last is None else checkpoint.batch(last)
    if known is not None and batch is not None:
        of_before = EarlierFilters(
            until_ms=now_ms,
            offsets=batch.ends,
            watermark_ms=batch.watermark_ms,
            filters=known.present,
        )
        earlier = [*earlier, of_before][-_EARLIER_MAX:]
    filters = Filters(present=present, earlier=earlier)
    write_document(checkpoint.folder, filters)
    return _last(filters)


def earlier_filters(checkpoint: Checkpoint) -> Sequence[EarlierFilters]:
    """Oldest first."""
    known = read_document(checkpoint.folder, Filters)
    return [] if known is None else known.earlier


def _last(filters: Filters) -> EarlierFilters | None:
    return filters.earlier[-1] if filters.earlier else None


def _filters(plan: JoinPlan) -> dict[str, Filter | None]:
    written: Mapping[str, Expression | None] = {
        "left.filter": plan.left.filter,
        "right.filter": plan.right.filter,
        "output.filter": plan.output.filter,
    }
    return {
        field: None if each is None else Filter(text=each.text, sql=each.sql)
        for field, each in written.items()
    }
