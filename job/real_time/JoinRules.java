package streamjoin;

import java.io.Serializable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.types.StructType;

/** What the processor knows of a join: join.py derives it from the JoinPlan. */
public final class JoinRules implements Serializable {
  static final int LEFT = 0;
  static final int RIGHT = 1;

  /** Expiry of a row that stays. */
  static final long NEVER = Long.MAX_VALUE;

  /** Of the dataflow's rows: key columns and the slot, which is the last one. */
  final StructType keySchema;

  final StructType[] rowSchemas = new StructType[2];
  final StructType deadLetterSchema;
  final boolean[] padsUnmatched = new boolean[2];
  final boolean semi;

  /** Rows match if lower <= right event time - left event time <= upper, in microseconds. */
  final long lower;

  final long upper;

  /** Length of a slot in microseconds. 0: all rows of a key are in one slot. */
  final long slotLength;

  /** The part of ON over both sides, bound to the columns of left and right. Null: there is none. */
  final Expression condition;

  /** False: only unmatched rows are wanted. */
  final boolean emitsPairs;

  final boolean realTime;
  final RowCounts counts;

  public JoinRules(
      StructType keySchema,
      StructType inputSchema,
      String joinType,
      long lower,
      long upper,
      long slotLength,
      Expression condition,
      boolean emitsPairs,
      boolean realTime,
      RowCounts counts) {
    this.keySchema = keySchema;
    rowSchemas[LEFT] = (StructType) inputSchema.apply("left").dataType();
    rowSchemas[RIGHT] = (StructType) inputSchema.apply("right").dataType();
    deadLetterSchema = (StructType) inputSchema.apply("dead_letter").dataType();
    padsUnmatched[LEFT] = joinType.equals("left_outer") || joinType.equals("full_outer");
    padsUnmatched[RIGHT] = joinType.equals("right_outer") || joinType.equals("full_outer");
    semi = joinType.equals("left_semi");
    this.lower = lower;
    this.upper = upper;
    this.slotLength = slotLength;
    this.condition = condition;
    this.emitsPairs = emitsPairs;
    this.realTime = realTime;
    this.counts = counts;
  }

  /** When a stored row gives its list an entry in the index. */
  long indexedAt(int side, long slot, StoredRow row) {
    if (isIndexedByRow(side)) {
      return row.expiresAt;
    }
    // The list is removed as a whole: once the last row that it can hold has expired.
    long end = (Math.floorDiv(slot, 2) + 1) * slotLength;
    return row.expiresAt + ceilMillis(end) - ceilMillis(row.eventTime);
  }

  /** Whether the index has an entry for each row. Otherwise it has one for each list. */
  boolean isIndexedByRow(int side) {
    return padsUnmatched[side] || slotLength == 0;
  }

  StructType outputSchema() {
    StructType schema = rowSchemas[LEFT];
    if (!semi) {
      schema = schema.merge(rowSchemas[RIGHT], true);
    }
    return schema.add("dead_letter", deadLetterSchema).asNullable();
  }

  InternalRow pair(InternalRow left, InternalRow right) {
    counts.emitted.add(1);
    return output(left, right, null);
  }

  InternalRow unmatched(int side, InternalRow row) {
    counts.emitted.add(1);
    return side == LEFT ? output(row, null, null) : output(null, row, null);
  }

  InternalRow deadLetter(InternalRow letter) {
    return output(null, null, letter);
  }

  /** With the watermark as its last field. */
  InternalRow deadLetterOfLateRow(InternalRow letter, long watermark) {
    int last = deadLetterSchema.length() - 1;
    GenericInternalRow copy = new GenericInternalRow(last + 1);
    for (int field = 0; field < last; field++) {
      copy.update(field, letter.get(field, deadLetterSchema.apply(field).dataType()));
    }
    copy.update(last, watermark * InputRow.MICROS_PER_MILLI);
    return deadLetter(copy);
  }

  private InternalRow output(InternalRow left, InternalRow right, InternalRow deadLetter) {
    InternalRow row = left == null ? new GenericInternalRow(rowSchemas[LEFT].length()) : left;
    if (!semi) {
      int width = rowSchemas[RIGHT].length();
      row = new JoinedRow(row, right == null ? new GenericInternalRow(width) : right);
    }
    return new JoinedRow(row, new GenericInternalRow(new Object[] {deadLetter}));
  }

  /** Whether state says of rows of this side that they have matched. */
  boolean marksMatched(int side) {
    return padsUnmatched[side] || (semi && side == LEFT);
  }

  /** The first slot, of rows of `side`, that can hold a match for a row of the other side. */
  long firstSlot(int side, long otherTime) {
    return slot(side, otherTime + (side == RIGHT ? lower : -upper));
  }

  long lastSlot(int side, long otherTime) {
    return slot(side, otherTime + (side == RIGHT ? upper : -lower));
  }

  /** Even numbers are slots of the left side, odd ones of the right side. */
  long slot(int side, long eventTime) {
    return slotLength == 0 ? side : Math.floorDiv(eventTime, slotLength) * 2 + side;
  }

  static int sideOf(long slot) {
    return (int) (slot & 1);
  }

  static long ceilMillis(long micros) {
    return Math.floorDiv(micros + 999, 1000);
  }
}
