package streamjoin;

import org.apache.spark.sql.catalyst.InternalRow;

/** A row of one side that is in state or enters it. */
final class StoredRow {
  /** Of a position: partition * 2^48 + offset, as in job/plan/position.py. */
  static final int OFFSET_BITS = 48;

  /** Microseconds since 1970. */
  final long eventTime;

  /** The first watermark, in milliseconds, at which no later row can match this row. */
  final long expiresAt;

  /** Partition and offset in Kafka, as one number. */
  final long position;

  final InternalRow row;

  /** Whether it has matched. Of a version of a table: whether it deletes its key. */
  boolean matched;

  StoredRow(long eventTime, long expiresAt, long position, boolean matched, InternalRow row) {
    this.eventTime = eventTime;
    this.expiresAt = expiresAt;
    this.position = position;
    this.matched = matched;
    this.row = row;
  }

  /** A copy that stays valid when the next row is read. */
  StoredRow copy() {
    return new StoredRow(eventTime, expiresAt, position, matched, row.copy());
  }
}
