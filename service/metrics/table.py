"""Joins with a table."""

from service.metrics.metric import Metric, Snapshot, Value, counter, gauge


def _has_table(snapshot: Snapshot) -> bool:
    return snapshot.status.table is not None


def _rows(snapshot: Snapshot) -> Value:
    last = snapshot.status.last_batch
    return None if last is None or not _has_table(snapshot) else last.state_rows


def _records_left(snapshot: Snapshot) -> Value:
    return snapshot.status.table_records_left


def _rows_without_version(snapshot: Snapshot) -> Value:
    if not _has_table(snapshot):
        return None
    counts = snapshot.status.totals.table
    return {
        "no_key": counts.rows_without_key,
        "deleted": counts.rows_after_delete,
        "before_first": counts.rows_before_first,
    }


def _keys_moved(snapshot: Snapshot) -> Value:
    return snapshot.status.totals.table.keys_moved if _has_table(snapshot) else None


def _stale_answers(snapshot: Snapshot) -> Value:
    return snapshot.status.totals.table.stale_answers if _has_table(snapshot) else None


TABLE: tuple[Metric[Snapshot], ...] = (
    gauge(
        "table_rows",
        "Rows of the table after the last batch: one for each key, or its versions. This and the "
        "other metrics of a table exist only in a join with a table.",
        _rows,
    ),
    gauge(
        "table_loading_records",
        "Offsets of the table that are read before the stream, while the query reads only the "
        "table.",
        _records_left,
    ),
    counter(
        "rows_without_version",
        "Rows of the stream that were joined with no row of the table, by reason: no_key, the "
        "table had no row of the key; with `table: as_of` also deleted, the version at the event "
        "time was deleted or older than `retention`, and before_first, all versions are later.",
        _rows_without_version,
        "reason",
    ),
    counter(
        "table_keys_moved",
        "Records of the table whose key came from another partition before: such records have no "
        "order.",
        _keys_moved,
    ),
    counter(
        "table_stale_answers",
        "With `table: as_of`: versions that were read after rows of the stream with a later event "
        "time, in the same state partition. Such rows of the same key joined an older version.",
        _stale_answers,
    ),
)
