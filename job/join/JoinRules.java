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

  /** The lists of rows in state: those of the two sides, then the ids of the two sides. */
  static final int LISTS = 4;

  /** In place of the time after which rows expire. */
  private static final long FOREVER = Long.MAX_VALUE;

  /** The slots of a side whose rows do not expire have numbers of so many bits. */
  private static final int HASHED_SLOT_BITS = 8;

  /** Key columns of the rows of the dataflow. The first column is the slot. */
  final StructType keySchema;

  /** Of the rows that arrive: InputRow. */
  final StructType inputSchema;

  /** Of the lists in state. Null: the side drops no duplicates. */
  final StructType[] keySchemas = new StructType[LISTS];

  final StructType[] rowSchemas = new StructType[LISTS];
  final StructType deadLetterSchema;
  final boolean[] padsUnmatched = new boolean[2];
  final boolean semi;

  /** Rows match if lower <= right event time - left event time <= upper, in microseconds. */
  final long lower;

  final long upper;

  /** As `lower` and `upper`, for the times by which rows are in slots. */
  final long slotLower;

  final long slotUpper;

  /** Length of a slot of each list, in microseconds. */
  private final long[] slotLengths;

  /**
   * For each list, the time from the slot time of a row to its expiry, in milliseconds, or {@link
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

  /** Of each side. Null: it drops no duplicates. */
  final IdRules[] ids;

  /** The first side whose rows are in state. RIGHT: a row of the left side never waits there. */
  private final int firstStored;

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
      TableRules table,
      IdRules leftIds,
      IdRules rightIds) {
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
    slotLengths = new long[] {slotLength, slotLength, 0, 0};
    kept = new long[] {keptLeft, keptRight, 0, 0};
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
    ids = new IdRules[] {leftIds, rightIds};
    for (int side = LEFT; side <= RIGHT; side++) {
      keySchemas[side] = keySchema;
      if (ids[side] != null) {
        int list = ids(side);
        keySchemas[list] = keySchema.merge(ids[side].schema, true);
        rowSchemas[list] = new StructType();
        slotLengths[list] = ids[side].slotLength;
        kept[list] = ids[side].kept;
      }
    }
  }

  /** The list with the ids of a side. */
  static int ids(int side) {
    return RIGHT + 1 + side;
  }

  /** Whether a list is in state. */
  boolean stores(int list) {
    return list <= RIGHT ? list >= firstStored : keySchemas[list] != null;
  }

  /** The earliest watermark, in milliseconds, at which a row of the slot may expire. */
  long firstExpiry(Slot slot) {
    return ceilMillis(slot.number * slotLengths[slot.side] + 1) + kept[slot.side];
  }

  /** The first watermark, in milliseconds, at which all rows of the slot have expired. */
  long lastExpiry(Slot slot) {
    return ceilMillis((slot.number + 1) * slotLengths[slot.side]) + kept[slot.side];
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

  /** Whether the result of a row of this list is emitted when it expires. */
  boolean emitsExpired(int list) {
    return list <= RIGHT && (padsUnmatched[list] || (waits() && list == LEFT));
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
   * Whether rows of a list expire, and are in slots of time. If not, as in a table or in a join
   * without bounds, they are in slots by their keys.
   */
  boolean expires(int list) {
    return (table == null || list == LEFT) && kept[list] != FOREVER;
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
  long slot(int list, long time, int hash) {
    return expires(list) ? Math.floorDiv(time - 1, slotLengths[list]) : slotOfKey(hash);
  }

  static long slotOfKey(int hash) {
    return hash >>> Integer.SIZE - HASHED_SLOT_BITS;
  }

  static long ceilMillis(long micros) {
    return Math.floorDiv(micros + 999, 1000);
  }
}
