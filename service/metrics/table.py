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
    return {"no_key": snapshot.status.totals.table.rows_without_version}


def _keys_moved(snapshot: Snapshot) -> Value:
    return snapshot.status.totals.table.keys_moved if _has_table(snapshot) else None


TABLE: tuple[Metric[Snapshot], ...] = (
    gauge(
        "table_rows",
        "Rows of the table after the last batch: one for each key. This and the other metrics of a "
        "table exist only in a join with a table.",
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
        "table had no row of the key.",
        _rows_without_version,
        "reason",
    ),
    counter(
        "table_keys_moved",
        "Records of the table whose key came from another partition before: such records have no "
        "order.",
        _keys_moved,
    ),
)
