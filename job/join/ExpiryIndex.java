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
 * Index of the lists by the time at which a row of the list expires.
 *
 * <p>The entries are in the column family of Spark's event time timers, so far in the future that
 * Spark never fires them. Timers do not suffice: Spark fires all timers that are due before it
 * processes the next row, which takes seconds with an interval of a minute. The processor chooses
 * how many entries it evicts at a time. An entry costs one put, a timer a lookup and two puts.
 */
final class ExpiryIndex {
  /**
   * Milliseconds that are added to each expiry. Beyond any watermark: the last one is in year 9999.
   */
  private static final long NEVER_FIRED = 1L << 52;

  /** Second of two timers between the timers that Spark fires and the entries. */
  private static final long FENCE = 1L << 51;

  /** Start of a scan of all entries. */
  static final long START = FENCE + 1 - NEVER_FIRED;

  private static final String FAMILY =
      TimerStateUtils.EVENT_TIMERS_STATE_NAME() + TimerStateUtils.TIMESTAMP_TO_KEY_CF();

  private final StateStore store;
  private final int keyWidth;
  private final UnsafeProjection entryProjection;
  private final UnsafeRow nothing;

  ExpiryIndex(StateStore store, StructType keySchema) {
    this.store = store;
    keyWidth = keySchema.length();
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

  /**
   * Key of a list and the expiry of one of its rows. The entries are sorted by expiry, then by key.
   */
  static final class Entry {
    final long expiresAt;

    /** Null in {@link #last}. */
    final UnsafeRow key;

    Entry(long expiresAt, UnsafeRow key) {
      this.expiresAt = expiresAt;
      this.key = key;
    }
  }

  /**
   * Adds two timers before the entries. In real time Spark searches for due timers after each row,
   * up to the first timer that is not due. Without the two timers the search would read all removed
   * entries, which RocksDB keeps for a while. There are two because Spark's iterator reads one
   * timer ahead.
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

  /** A place after all entries that expire at `expiresAt`, and before all that expire later. */
  static Entry last(long expiresAt) {
    // Spark encodes a null behind all keys.
    return new Entry(expiresAt, null);
  }

  /**
   * The first `count` entries after `after` that have expired at `watermark`. A scan from the
   * beginning would read the removed entries that RocksDB still keeps.
   */
  List<Entry> expired(Entry after, long watermark, int count) {
    List<Entry> found = new ArrayList<>();
    Option<UnsafeRow> start = Option.apply(entry(after).copy());
    Option<UnsafeRow> end = Option.apply(entry(last(watermark)).copy());
    StateStoreIterator<UnsafeRowPair> entries = store.rangeScan(start, end, FAMILY);
    try {
      while (found.size() < count && entries.hasNext()) {
        UnsafeRow entry = entries.next().key();
        // The scan begins with `after` if this entry has not been removed.
        if (!entry.equals(start.get())) {
          long expiresAt = entry.getLong(0) - NEVER_FIRED;
          found.add(new Entry(expiresAt, entry.getStruct(1, keyWidth).copy()));
        }
      }
    } finally {
      entries.close();
    }
    return found;
  }

  /**
   * Removes all entries that expire after `from` and up to `watermark`, in one operation of the
   * store.
   */
  void removeExpired(long from, long watermark) {
    store.deleteRange(entry(last(from)).copy(), entry(last(watermark)), FAMILY);
  }

  private UnsafeRow entry(Entry entry) {
    return entry(entry.expiresAt, entry.key);
  }

  private UnsafeRow entry(long expiresAt, InternalRow key) {
    return entryProjection.apply(
        new GenericInternalRow(new Object[] {expiresAt + NEVER_FIRED, key}));
  }
}
