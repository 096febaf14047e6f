package streamjoin;

import java.io.Serializable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.types.StructType;

/** Rules of the join for the processor. join.py derives them from the JoinPlan. */
public final class JoinRules implements Serializable {
  static final int LEFT = 0;
  static final int RIGHT = 1;

  /** Expiry of a row that never expires. */
  static final long NEVER = Long.MAX_VALUE;

  /** Key columns of the rows of the dataflow. The last column is the slot. */
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

  /**
   * The part of ON with columns of both sides, bound to left and right. Null: ON has no such part.
   */
  final Expression condition;

  /** Whether pairs are emitted. False in an anti join. */
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

  /** Expiry, in milliseconds, of the index entry for a stored row. */
  long indexedAt(int side, long slot, StoredRow row) {
    if (isIndexedByRow(side)) {
      return row.expiresAt;
    }
    // The list is removed as a whole, once the last possible row of its slot has expired.
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

  /** The dead letter of a late row, with the watermark as its last field. */
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

  /** Whether state records that rows of this side have matched. */
  boolean marksMatched(int side) {
    return padsUnmatched[side] || (semi && side == LEFT);
  }

  /** The first slot of `side` that can contain a match for a row of the other side. */
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
