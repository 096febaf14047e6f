package streamjoin;

import java.io.Serializable;
import org.apache.spark.SparkContext;
import org.apache.spark.util.LongAccumulator;

/** Counts of rows by side, which executors add to and the driver reads. */
public final class RowCounts implements Serializable {
  private static final String[] SIDES = {"left", "right"};

  final LongAccumulator[] late = new LongAccumulator[2];
  final LongAccumulator[] stored = new LongAccumulator[2];
  final LongAccumulator[] removed = new LongAccumulator[2];
  final LongAccumulator emitted;
  final NewestTime[] newest = {new NewestTime(), new NewestTime()};

  private final transient SparkContext context;
  private final transient RunningTasks running = new RunningTasks();

  public RowCounts(SparkContext context) {
    this.context = context;
    for (int side = 0; side < SIDES.length; side++) {
      late[side] = context.longAccumulator(name("late", side));
      stored[side] = context.longAccumulator(name("stored", side));
      removed[side] = context.longAccumulator(name("removed", side));
      context.register(newest[side], name("newest", side));
      running.watch(late[side]);
      running.watch(newest[side]);
    }
    emitted = context.longAccumulator("streamjoin.emitted");
    running.watch(emitted);
    context.addSparkListener(running);
  }

  /** Of accumulators, as Spark's events name them. */
  public static String name(String count, int side) {
    return "streamjoin." + count + "." + SIDES[side];
  }

  public void close() {
    context.removeSparkListener(running);
  }

  /** To be called when an interval begins. */
  public void beginInterval() {
    running.forget();
  }

  /** Late rows of the running interval, as of the last heartbeats of its tasks. */
  public long lateInInterval(int side) {
    return running.sum(late[side]);
  }

  /** Rows without dead letters, before the filter of the output. */
  public long emittedInInterval() {
    return running.sum(emitted);
  }

  /** In milliseconds since 1970. Null: no row has come yet. */
  public Long newestInInterval(int side) {
    long micros = running.max(newest[side]);
    return micros == NewestTime.NONE ? null : Math.floorDiv(micros, InputRow.MICROS_PER_MILLI);
  }

  public long late(int side) {
    return late[side].value();
  }

  public long stored(int side) {
    return stored[side].value();
  }

  public long removed(int side) {
    return removed[side].value();
  }
}
