package streamjoin;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/** A row that enters the processor, with the columns that join.py gives it. */
final class InputRow {
  private static final int SIDE = 0;
  private static final int LATE_AT = 1;
  private static final int EVENT_TIME = 2;
  private static final int EXPIRES_AT = 3;
  private static final int IS_MATCHABLE = 4;
  private static final int POSITION = 5;
  private static final int ROW_OF_LEFT = 6;
  private static final int DEAD_LETTER = 8;
  private static final int ID_OF_LEFT = 9;

  /** In place of a side, of a row without content. */
  private static final int TICK = 3;

  static final long MICROS_PER_MILLI = 1000;

  private final JoinRules rules;
  private final InternalRow row;
  private final int first;

  InputRow(JoinRules rules, InternalRow row) {
    this.rules = rules;
    this.row = row;
    first = rules.keySchema.length();
  }

  /** A row that only lets the join go on. */
  static UnsafeRow tick(JoinRules rules) {
    GenericInternalRow row = new GenericInternalRow(rules.inputSchema.length());
    row.update(0, 0L);
    row.update(rules.keySchema.length() + SIDE, TICK);
    return UnsafeProjection.create(rules.inputSchema).apply(row);
  }

  boolean isTick() {
    return side() == TICK;
  }

  int side() {
    return row.getInt(first + SIDE);
  }

  /** Whether the row belongs to a side. False: the row is a dead letter. */
  boolean isOfASide() {
    return side() <= JoinRules.RIGHT;
  }

  boolean isLate(long watermark) {
    return slotTime() <= watermark * MICROS_PER_MILLI;
  }

  /** The end of the tumbling window, or else the event time, in microseconds since 1970. */
  long slotTime() {
    return row.getLong(first + LATE_AT);
  }

  /** Microseconds since 1970. */
  long eventTime() {
    return row.getLong(first + EVENT_TIME);
  }

  /** As in job/plan/position.py. */
  long position() {
    return row.getLong(first + POSITION);
  }

  /** False: no row of the other side can match this row, for example because a key is null. */
  boolean isMatchable() {
    return row.getBoolean(first + IS_MATCHABLE);
  }

  boolean hasDeadLetter() {
    return !row.isNullAt(first + DEAD_LETTER);
  }

  InternalRow deadLetter() {
    return row.getStruct(first + DEAD_LETTER, rules.deadLetterSchema.length());
  }

  /** Of a side that drops duplicates. Null: a part of the id is null. */
  InternalRow id() {
    int side = side();
    int id = first + ID_OF_LEFT + side;
    return row.isNullAt(id) ? null : row.getStruct(id, rules.ids[side].schema.length());
  }

  InternalRow row() {
    int side = side();
    return row.getStruct(first + ROW_OF_LEFT + side, rules.rowSchemas[side].length());
  }

  StoredRow toStore() {
    return stored(false, row());
  }

  /** Of a record of a table, which stays valid when the next row is read. */
  StoredRow toVersion() {
    return stored(!isMatchable(), row().copy());
  }

  private StoredRow stored(boolean matched, InternalRow columns) {
    long expiresAt = row.getLong(first + EXPIRES_AT);
    return new StoredRow(eventTime(), expiresAt, position(), matched, columns);
  }
}
