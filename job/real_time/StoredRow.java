package streamjoin;

import org.apache.spark.sql.catalyst.InternalRow;

/** A row of one side, in state or on its way into it. */
final class StoredRow {
  /** Microseconds. */
  final long eventTime;

  /** The first watermark, in milliseconds, with which no row to come can match this one. */
  final long expiresAt;

  /** Partition and offset in Kafka. */
  final long position;

  final InternalRow row;
  boolean matched;

  StoredRow(long eventTime, long expiresAt, long position, boolean matched, InternalRow row) {
    this.eventTime = eventTime;
    this.expiresAt = expiresAt;
    this.position = position;
    this.matched = matched;
    this.row = row;
  }

  /** One that stays valid when the next row is read. */
  StoredRow copy() {
    return new StoredRow(eventTime, expiresAt, position, matched, row.copy());
  }
}
