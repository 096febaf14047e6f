package streamjoin;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.Predicate;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.ImplicitGroupingKeyTracker;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.StatefulProcessorHandleImpl;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.StatefulProcessorHandleState;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.ListState;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;

/**
 * Spark's stream-stream join as a stateful processor that runs in real time and in micro-batches.
 *
 * <pre>
 *   a row of the left side                                          state of one partition
 *        |
 *        |  1. late? counted, not joined           key, slot 2n     | row | row | matched(row) | row
 *        |  2. probe the slots of the right side   key, slot 2n+1   | row | row
 *        |     that can hold a match               key, slot 2n+2   | row
 *        |  3. append to its own slot              ...
 *        |  4. add to the index                    expiry index     | at, key, slot | at, key, slot
 *        v
 *   pairs, unmatched rows
 * </pre>
 *
 * <p>The rows of a key are stored in slots. A slot is a list of the rows of one side whose event
 * times are in one range. A probe reads each slot that can contain a match: at most two slots if
 * the match window is shorter than a slot, however many rows the key has. Entries are only appended
 * to a list. If a stored row matches, another entry of the list records the match.
 *
 * <p>A row expires at the first watermark at which no later row can match it. An unmatched row of
 * an outer side is then emitted. A list is removed once all of its rows have expired. In
 * micro-batches the processor evicts at the end of the batch, as StreamingSymmetricHashJoinExec
 * does. In real time the watermark advances only between two intervals, so that many rows expire at
 * once: with each row that arrives the processor evicts a few entries of the index, and the rest at
 * the end of the interval.
 *
 * <p>Late rows are counted by side and dropped, or replaced by their dead letters. In micro-batches
 * the watermark of the previous batch decides which rows are late, as in Spark's own join. In real
 * time the watermark of the interval decides.
 *
 * <p>Unlike Spark 4.3.0's own operator, a left semi join does not miss a match in the batch that
 * evicts one of the two rows.
 */
public final class StreamJoin extends StatefulProcessor<InternalRow, InternalRow, InternalRow> {
  private static final int LEFT = JoinRules.LEFT;
  private static final int RIGHT = JoinRules.RIGHT;
  private static final String[] SIDES = {"left", "right"};

  /** Entries of the index evicted with each row in real time. A row adds at most one entry. */
  private static final int EVICTED_WITH_EACH_ROW = 4;

  private static final int EVICTED_AT_ONCE = 1000;

  /** Slot of the key with the clock of a partition: the watermark of the last eviction. */
  private static final long CLOCK_SLOT = Long.MIN_VALUE;

  private final JoinRules rules;

  private transient StoredRows[] stored;
  private transient ExpiryIndex index;
  private transient Eviction eviction;
  private transient ValueState<Long> clock;
  private transient long lateWatermark;
  private transient BasePredicate condition;
  private transient JoinedRow pair;
  private transient UnsafeProjection keyProjection;

  public StreamJoin(JoinRules rules) {
    this.rules = rules;
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    StatefulProcessorHandle handle = getHandle();
    List<ListState<InternalRow>> lists = Interpreted.projectionsOf(() -> stateOf(handle));
    if (!(handle instanceof StatefulProcessorHandleImpl)) {
      return; // The driver also calls this method, for the schema of the state.
    }
    stored = new StoredRows[SIDES.length];
    for (int side = LEFT; side <= RIGHT; side++) {
      stored[side] = new StoredRows(lists.get(side), SIDES[side], rules.rowSchemas[side]);
    }
    index = new ExpiryIndex(stored[LEFT].store(), rules.keySchema);
    eviction = null;
    keyProjection = UnsafeProjection.create(rules.keySchema);
    pair = new JoinedRow();
    if (rules.condition != null) {
      condition = Predicate.create(rules.condition);
      condition.initialize(0);
    }
  }

  /** Creates the clock. Returns the list of each side. */
  private List<ListState<InternalRow>> stateOf(StatefulProcessorHandle handle) {
    List<ListState<InternalRow>> lists = new ArrayList<>();
    for (int side = LEFT; side <= RIGHT; side++) {
      StructType entry = StoredRows.entrySchema(rules.rowSchemas[side]);
      lists.add(handle.getListState(SIDES[side], InternalRows.schemaOnly(entry), TTLConfig.NONE()));
    }
    clock = handle.getValueState("clock", NumberEncoder.INSTANCE, TTLConfig.NONE());
    return lists;
  }

  @Override
  public Iterator<InternalRow> handleInputRows(
      InternalRow key, Iterator<InternalRow> rows, TimerValues times) {
    long watermark = times.getCurrentWatermarkInMs();
    if (eviction == null) {
      ImplicitGroupingKeyTracker.setImplicitKey(clockKey());
      // The read of the timers creates their column family, which the index uses. `size` reads all
      // timers, at most two, and so closes RocksDB's iterator.
      if (Interpreted.projectionsOf(() -> getHandle().listTimers().size()) == 0) {
        clock.update(ExpiryIndex.START);
        index.addFences(clockKey());
        getHandle().registerTimer(watermark + 1);
      }
      startEviction(watermark);
      ImplicitGroupingKeyTracker.setImplicitKey(key);
      lateWatermark = rules.realTime ? watermark : LateWatermark.ofBatch();
    }
    return new KeyJoin(key, rows, watermark);
  }

  /**
   * Spark calls this method for the clock of the partition once the watermark has advanced: at the
   * end of a batch or an interval, and in real time also after the first row of the interval.
   */
  @Override
  public Iterator<InternalRow> handleExpiredTimer(
      InternalRow key, TimerValues times, ExpiredTimerInfo timer) {
    long watermark = times.getCurrentWatermarkInMs();
    if (eviction == null) {
      startEviction(watermark);
    }
    if (!isDataProcessed()) {
      // The new timer is before the timers that Spark has fired in this interval, so Spark finds
      // it only at the end of the interval.
      long before = watermark - 1;
      getHandle().registerTimer(timer.getExpiryTimeInMs() == before ? before - 1 : before);
      return new Buffered();
    }
    return new Buffered() {
      @Override
      boolean fill(List<InternalRow> output) {
        if (eviction.evict(EVICTED_AT_ONCE, output)) {
          return true;
        }
        eviction.end();
        clock.update(watermark);
        getHandle().registerTimer(watermark + 1);
        return false;
      }
    };
  }

  /** The implicit key must be the key of the clock. */
  private void startEviction(long watermark) {
    eviction = new Eviction(rules, stored, index, clock.get(), watermark);
  }

  private InternalRow clockKey() {
    GenericInternalRow key = new GenericInternalRow(rules.keySchema.length());
    key.update(key.numFields() - 1, CLOCK_SLOT);
    return key;
  }

  private boolean isDataProcessed() {
    return ((StatefulProcessorHandleImpl) getHandle())
        .getHandleState()
        .equals(StatefulProcessorHandleState.DATA_PROCESSED());
  }

  private boolean matches(StoredRow left, StoredRow right) {
    long distance = right.eventTime - left.eventTime;
    return distance >= rules.lower
        && distance <= rules.upper
        && (condition == null || condition.eval(pair.apply(left.row, right.row)));
  }

  /** Joins the rows of one key that have arrived: all rows of a batch, or one row in real time. */
  private final class KeyJoin extends Buffered {
    private final GenericInternalRow key;
    private final Iterator<InternalRow> rows;
    private final long watermark;

    /** Lists that have been read, by slot. */
    private final Map<Long, List<StoredRow>> lists = new HashMap<>();

    /** Rows that had expired when they arrived. Only rows of the same batch can match them. */
    private final List<List<StoredRow>> expired = List.of(new ArrayList<>(), new ArrayList<>());

    private boolean ended;

    KeyJoin(InternalRow key, Iterator<InternalRow> rows, long watermark) {
      this.key = (GenericInternalRow) key;
      this.rows = rows;
      this.watermark = watermark;
    }

    @Override
    boolean fill(List<InternalRow> output) {
      if (rows.hasNext()) {
        accept(new InputRow(rules, rows.next()), output);
        return true;
      }
      if (ended) {
        return false;
      }
      ended = true;
      for (int side = LEFT; side <= RIGHT; side++) {
        for (StoredRow row : expired.get(side)) {
          if (rules.padsUnmatched[side] && !row.matched) {
            output.add(rules.unmatched(side, row.row));
          }
        }
      }
      if (rules.realTime) {
        eviction.evict(EVICTED_WITH_EACH_ROW, output);
      }
      return true;
    }

    private void accept(InputRow input, List<InternalRow> output) {
      if (!input.isOfASide()) {
        output.add(rules.deadLetter(input.deadLetter()));
        return;
      }
      int side = input.side();
      rules.counts.newest[side].add(input.eventTime());
      if (input.isLate(lateWatermark)) {
        rules.counts.late[side].add(1);
        if (input.hasDeadLetter()) {
          output.add(rules.deadLetterOfLateRow(input.deadLetter(), lateWatermark));
        }
      } else if (!input.isMatchable()) {
        if (rules.padsUnmatched[side]) {
          output.add(rules.unmatched(side, input.row()));
        }
      } else {
        join(side, input.toStore(), output);
      }
    }

    private void join(int side, StoredRow row, List<InternalRow> output) {
      int other = 1 - side;
      boolean isEnough = rules.semi && side == LEFT;
      boolean matched = false;
      long last = rules.lastSlot(other, row.eventTime);
      for (long slot = rules.firstSlot(other, row.eventTime); slot <= last; slot += 2) {
        matched |= probe(side, row, slot, list(slot), output);
        if (isEnough && matched) {
          return;
        }
      }
      matched |= probe(side, row, EXPIRED, expired.get(other), output);
      if (!(isEnough && matched)) {
        row.matched = matched && rules.marksMatched(side);
        store(side, row);
      }
    }

    private static final long EXPIRED = Long.MIN_VALUE;

    /** Emits the matches of `row` among `others`, rows of the other side. */
    private boolean probe(
        int side, StoredRow row, long slot, List<StoredRow> others, List<InternalRow> output) {
      boolean matched = false;
      for (StoredRow other : others) {
        if (rules.semi && side == RIGHT && other.matched) {
          continue; // The left row has been emitted.
        }
        StoredRow left = side == LEFT ? row : other;
        StoredRow right = side == LEFT ? other : row;
        if (!matches(left, right)) {
          continue;
        }
        matched = true;
        if (rules.emitsPairs) {
          output.add(rules.pair(left.row, right.row));
        }
        if (rules.marksMatched(1 - side) && !other.matched) {
          other.matched = true;
          if (slot != EXPIRED) {
            stored[1 - side].markMatched(stateKey(slot), other);
          }
        }
        if (rules.semi && side == LEFT) {
          return true;
        }
      }
      return matched;
    }

    private List<StoredRow> list(long slot) {
      return lists.computeIfAbsent(
          slot, each -> stored[JoinRules.sideOf(each)].read(stateKey(each)));
    }

    private void store(int side, StoredRow row) {
      if (row.expiresAt <= watermark) {
        expired.get(side).add(row.copy());
        return;
      }
      long slot = rules.slot(side, row.eventTime);
      UnsafeRow stateKey = stateKey(slot);
      stored[side].append(stateKey, row);
      rules.counts.stored[side].add(1);
      List<StoredRow> list = lists.get(slot);
      if (list != null) {
        list.add(row.copy());
      }
      if (row.expiresAt != JoinRules.NEVER) {
        index.add(rules.indexedAt(side, slot, row), stateKey);
      }
    }

    private UnsafeRow stateKey(long slot) {
      key.update(key.numFields() - 1, slot);
      return keyProjection.apply(key);
    }
  }
}
