package streamjoin;

import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.ImplicitGroupingKeyTracker;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.StatefulProcessorHandleImpl;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.StatefulProcessorHandleState;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.TimerValues;
import scala.collection.Iterator;

/**
 * A join with rows that expire: in micro-batches at the end of each batch. In real time the watermark
 * also advances while an interval runs (LiveWatermark): a few rows expire with each row that arrives,
 * and the rest at the end of the interval.
 */
abstract class EvictingJoin extends JoinProcessor {
  static final int EVICTED_AT_ONCE = 1000;

  /** Slot of the key with the clock of a partition: the watermark of the last eviction. */
  private static final long CLOCK_SLOT = Long.MIN_VALUE;

  /** Before any watermark. */
  private static final long START = Long.MIN_VALUE;

  /** Null: no row has arrived, and no timer has expired. */
  transient Eviction eviction;

  transient DeliveredRows delivered;
  transient long lateWatermark;
  private transient TransactionSlot slot;

  EvictingJoin(JoinRules rules) {
    super(rules);
  }

  @Override
  void taskBegins() {
    eviction = null;
  }

  /** Of the rows that expire, if they wait for their results. */
  abstract ResultOfExpired results();

  /** Called before an eviction. `previous`: the watermark of the one before. */
  abstract void evictionBegins(long previous);

  /** Call it with the first row of each key that arrives. */
  final void rowsArrive(InternalRow key, TimerValues times) {
    if (eviction == null) {
      long watermark = times.getCurrentWatermarkInMs();
      ImplicitGroupingKeyTracker.setImplicitKey(clockKey());
      if (!clock.exists()) {
        setClock(START);
        Interpreted.projectionsOf(
            () -> {
              getHandle().registerTimer(watermark);
              return null;
            });
      }
      begin(watermark);
      ImplicitGroupingKeyTracker.setImplicitKey(key);
      lateWatermark = rules.realTime ? eviction.watermark() : LateWatermark.ofBatch();
    }
    advance();
  }

  /**
   * Spark calls this method for the clock of the partition at the end of each batch or interval, and
   * in real time also after the first row of the interval.
   */
  @Override
  public final Iterator<InternalRow> handleExpiredTimer(
      InternalRow key, TimerValues times, ExpiredTimerInfo timer) {
    long watermark = times.getCurrentWatermarkInMs();
    if (eviction == null) {
      begin(watermark);
    }
    // Spark deletes a timer that was registered again with its time. A timer that is not after the
    // watermark is due in the next batch, and within an interval only at its end: it is before the
    // timers that Spark has fired.
    long before = isDataProcessed() ? watermark : watermark - 1;
    getHandle().registerTimer(timer.getExpiryTimeInMs() == before ? before - 1 : before);
    if (!isDataProcessed()) {
      return new Buffered();
    }
    return new Buffered() {
      @Override
      boolean fill(List<InternalRow> output) {
        if (eviction.evict(EVICTED_AT_ONCE, output)) {
          return true;
        }
        // All partitions end an interval with the last watermark, which Spark's commit log has.
        if (offered() > eviction.watermark()) {
          startEviction(eviction.watermark(), offered());
          return true;
        }
        state.setEvictedAt(eviction.watermark());
        setClock(eviction.watermark());
        return false;
      }
    };
  }

  /** Called when the task begins. The implicit key must be the key of the clock. */
  private void begin(long watermark) {
    slot = TransactionSlot.ofTask();
    delivered = DeliveredRows.ofTask(rules.inputs);
    state.remove(delivered);
    startEviction(clock.get().next(), Math.max(watermark, offered()));
  }

  /**
   * Begins another eviction if the last one has ended and the watermark has advanced. One that reads
   * many rows from the store waits for the end of the interval.
   */
  private void advance() {
    boolean canBegin = rules.liveRun != 0 && eviction.hasEnded() && !eviction.readsStore();
    if (canBegin && offered() > eviction.watermark()) {
      startEviction(eviction.watermark(), offered());
      lateWatermark = eviction.watermark();
    }
  }

  /** The watermark that the driver offers while an interval runs. */
  private long offered() {
    return rules.liveRun == 0 ? LiveWatermark.NONE : LiveWatermark.watermark(rules.liveRun);
  }

  private void startEviction(long previous, long watermark) {
    state.setEvictedAt(previous);
    evictionBegins(previous);
    eviction = new Eviction(rules, state, results(), previous, Math.max(previous, watermark));
    if (slot != null) {
      slot.advanceTo(eviction.watermark());
    }
  }

  private void setClock(long watermark) {
    clock.put(new Long[] {watermark});
  }

  private InternalRow clockKey() {
    GenericInternalRow key = new GenericInternalRow(rules.keySchema.length());
    key.update(0, CLOCK_SLOT);
    return key;
  }

  private boolean isDataProcessed() {
    return ((StatefulProcessorHandleImpl) getHandle())
        .getHandleState()
        .equals(StatefulProcessorHandleState.DATA_PROCESSED());
  }
}
