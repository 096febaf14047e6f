package streamjoin;

import java.io.Serializable;
import java.util.Locale;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.types.StructType;

/** Rules of the join for the processor. join.py derives them from the JoinPlan. */
public final class JoinRules implements Serializable {
  static final int LEFT = 0;
  static final int RIGHT = 1;

  /** In place of the time after which rows expire. */
  private static final long FOREVER = Long.MAX_VALUE;

  /** The slots of a side whose rows do not expire have numbers of so many bits. */
  private static final int HASHED_SLOT_BITS = 8;

  /** Key columns of the rows of the dataflow. The first column is the slot. */
  final StructType keySchema;

  /** Of the rows that arrive: InputRow. */
  final StructType inputSchema;

  final StructType[] rowSchemas = new StructType[2];
  final StructType deadLetterSchema;
  final boolean[] padsUnmatched = new boolean[2];
  final boolean semi;

  /** Rows match if lower <= right event time - left event time <= upper, in microseconds. */
  final long lower;

  final long upper;

  /** As `lower` and `upper`, for the times by which rows are in slots. */
  final long slotLower;

  final long slotUpper;

  /** Length of a slot in microseconds. */
  final long slotLength;

  /**
   * For each side, the time from the slot time of a row to its expiry, in milliseconds, or {@link
   * #FOREVER}.
   */
  final long[] kept;

  /** The share of the JVM's heap for the rows of all state partitions. */
  final double heapShare;

  /** Limit for a state partition in bytes, in place of its part of the share. 0: that part. */
  final long heapBytes;

  /**
   * The part of ON with columns of both sides, bound to left and right. Null: ON has no such part.
   */
  final Expression condition;

  /** Which match of a left row is its result, once its window has passed. */
  final Pick pick;

  /** Whether pairs are emitted. False in an anti join. */
  final boolean emitsPairs;

  final boolean realTime;

  /** The run of {@link LiveWatermark}. 0: the watermark does not advance within a batch. */
  final int liveRun;

  final Inputs inputs;

  final RowCounts counts;

  /** Of the right side. Null: it is a stream. */
  final TableRules table;

  /** The first side whose rows are in state. RIGHT: a row of the left side never waits there. */
  final int firstStored;

  public JoinRules(
      StructType keySchema,
      StructType inputSchema,
      String joinType,
      long lower,
      long upper,
      long slotLower,
      long slotUpper,
      long slotLength,
      long keptLeft,
      long keptRight,
      double heapShare,
      long heapBytes,
      Expression condition,
      String pick,
      boolean emitsPairs,
      boolean realTime,
      int liveRun,
      Inputs inputs,
      RowCounts counts,
      TableRules table) {
    this.keySchema = keySchema;
    this.inputSchema = inputSchema.asNullable();
    rowSchemas[LEFT] = (StructType) inputSchema.apply("left").dataType();
    rowSchemas[RIGHT] = (StructType) inputSchema.apply("right").dataType();
    deadLetterSchema = (StructType) inputSchema.apply("dead_letter").dataType();
    padsUnmatched[LEFT] = joinType.equals("left_outer") || joinType.equals("full_outer");
    padsUnmatched[RIGHT] = joinType.equals("right_outer") || joinType.equals("full_outer");
    semi = joinType.equals("left_semi");
    this.lower = lower;
    this.upper = upper;
    this.slotLower = slotLower;
    this.slotUpper = slotUpper;
    this.slotLength = slotLength;
    kept = new long[] {keptLeft, keptRight};
    this.heapShare = heapShare;
    this.heapBytes = heapBytes;
    this.condition = condition;
    this.pick = Pick.valueOf(pick.toUpperCase(Locale.ROOT));
    this.emitsPairs = emitsPairs;
    this.realTime = realTime;
    this.liveRun = liveRun;
    this.inputs = inputs;
    this.counts = counts;
    this.table = table;
    firstStored = table == null || table.storesStream() ? LEFT : RIGHT;
  }

  /** The earliest watermark, in milliseconds, at which a row of the slot may expire. */
  long firstExpiry(Slot slot) {
    return ceilMillis(slot.number * slotLength + 1) + kept[slot.side];
  }

  /** The first watermark, in milliseconds, at which all rows of the slot have expired. */
  long lastExpiry(Slot slot) {
    return ceilMillis((slot.number + 1) * slotLength) + kept[slot.side];
  }

  StructType outputSchema() {
    StructType schema = rowSchemas[LEFT];
    if (!semi) {
      schema = schema.merge(rowSchemas[RIGHT], true);
    }
    return schema.add("dead_letter", deadLetterSchema).asNullable();
  }

  InternalRow pair(InternalRow left, InternalRow right) {
    return output(left, right, null);
  }

  InternalRow unmatched(int side, InternalRow row) {
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

  /** Whether the result of a row of this side is emitted when it expires. */
  boolean emitsExpired(int side) {
    return padsUnmatched[side] || (waits() && side == LEFT);
  }

  /** Whether a left row that expires without a result before has its result then. */
  boolean waits() {
    return pick != Pick.NONE || (table != null && table.storesStream());
  }

  /** Whether a left row is joined with a table when it arrives, if it finds a row there. */
  boolean joinsAtOnce() {
    return table != null && !table.isFinal;
  }

  /**
   * Whether rows of a side expire, and are in slots of time. If not, as in a table or in a join
   * without bounds, they are in slots by their keys.
   */
  boolean expires(int side) {
    return (table == null || side == LEFT) && kept[side] != FOREVER;
  }

  /** Whether state records that rows of this side have matched. */
  boolean marksMatched(int side) {
    return padsUnmatched[side] || (semi && side == LEFT);
  }

  /**
   * The first slot of `side` that can contain a match for a row of the other side. `hash`: that of
   * the key.
   */
  long firstSlot(int side, long otherTime, int hash) {
    return slot(side, otherTime + (side == RIGHT ? slotLower : -slotUpper), hash);
  }

  long lastSlot(int side, long otherTime, int hash) {
    return slot(side, otherTime + (side == RIGHT ? slotUpper : -slotLower), hash);
  }

  /**
   * The slot of a row. `time`: the end of its tumbling window, or else its event time. `hash`: that of
   * its key. A slot of time ends with a multiple of its length, so that the rows of one tumbling
   * window leave with their slot.
   */
  long slot(int side, long time, int hash) {
    return expires(side) ? Math.floorDiv(time - 1, slotLength) : slotOfKey(hash);
  }

  static long slotOfKey(int hash) {
    return hash >>> Integer.SIZE - HASHED_SLOT_BITS;
  }

  static long ceilMillis(long micros) {
    return Math.floorDiv(micros + 999, 1000);
  }
}
