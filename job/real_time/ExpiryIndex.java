package streamjoin;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.timers.TimerStateUtils;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/**
 * Which list has a row that expires, in the order of expiry.
 *
 * <p>The entries are in the column family of Spark's event time timers, so far in the future that
 * Spark never fires them. Spark fires all timers that are due before the next row: with an interval
 * of a minute, for seconds. The processor takes as many entries at a time as it wants. An entry costs
 * one put. A timer costs a look-up and two puts.
 */
final class ExpiryIndex {
  /** Milliseconds. Beyond each watermark: the last one is at the end of year 9999. */
  private static final long NEVER_FIRED = 1L << 52;

  /** Between the timers that Spark fires and the entries. There is one before it, too. */
  private static final long FENCE = 1L << 51;

  /** Before each expiry. */
  static final long START = FENCE + 1 - NEVER_FIRED;

  private static final String FAMILY =
      TimerStateUtils.EVENT_TIMERS_STATE_NAME() + TimerStateUtils.TIMESTAMP_TO_KEY_CF();

  private final StateStore store;
  private final int keyWidth;
  private final UnsafeProjection entryProjection;
  private final UnsafeRow nothing;
  private final InternalRow noKey;

  ExpiryIndex(StateStore store, StructType keySchema) {
    this.store = store;
    keyWidth = keySchema.length();
    noKey = new GenericInternalRow(keyWidth);
    entryProjection =
        UnsafeProjection.create(
            new StructType()
                .add("expiryTimestampMs", DataTypes.LongType, false)
                .add("key", keySchema.asNullable()));
    nothing =
        UnsafeProjection.create(new StructType().add("nothing", DataTypes.NullType))
            .apply(new GenericInternalRow(new Object[] {null}))
            .copy();
  }

  /** A list of rows of which one expires. */
  static final class Entry {
    final long expiresAt;
    final UnsafeRow key;

    Entry(long expiresAt, UnsafeRow key) {
      this.expiresAt = expiresAt;
      this.key = key;
    }
  }

  /**
   * Ends Spark's search for timers that are due, after each row in real time, before the entries:
   * RocksDB keeps the removed ones for a while, and the search would read them all. The search ends
   * with the first timer that is not due, but its iterator is one further by then.
   */
  void addFences(InternalRow key) {
    for (long at = FENCE - 1; at <= FENCE; at++) {
      store.put(entry(at - NEVER_FIRED, key), nothing, FAMILY);
    }
  }

  void add(long expiresAt, UnsafeRow key) {
    store.put(entry(expiresAt, key), nothing, FAMILY);
  }

  void remove(long expiresAt, UnsafeRow key) {
    store.remove(entry(expiresAt, key), FAMILY);
  }

  /**
   * The first entries from `from` on that have expired at `watermark`, at most `count`. A scan from
   * the beginning reads what RocksDB keeps of removed entries.
   */
  List<Entry> expired(long from, long watermark, int count) {
    List<Entry> found = new ArrayList<>();
    Option<UnsafeRow> end = Option.apply(entry(watermark + 1, noKey).copy());
    StateStoreIterator<UnsafeRowPair> entries =
        store.rangeScan(Option.apply(entry(from, noKey).copy()), end, FAMILY);
    try {
      while (found.size() < count && entries.hasNext()) {
        UnsafeRow entry = entries.next().key();
        long expiresAt = entry.getLong(0) - NEVER_FIRED;
        if (expiresAt > watermark) {
          break;
        }
        found.add(new Entry(expiresAt, entry.getStruct(1, keyWidth).copy()));
      }
    } finally {
      entries.close();
    }
    return found;
  }

  private UnsafeRow entry(long expiresAt, InternalRow key) {
    return entryProjection.apply(
        new GenericInternalRow(new Object[] {expiresAt + NEVER_FIRED, key}));
  }
}
