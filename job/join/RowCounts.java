package streamjoin;

import java.io.Serializable;
import org.apache.spark.SparkContext;
import org.apache.spark.util.LongAccumulator;

/** Counts of rows by side. Executors add to them, the driver reads them. */
public final class RowCounts implements Serializable {
  private static final String[] SIDES = {"left", "right"};

  /** A heartbeat follows every 2 seconds. Some may be late. */
  private static final long SILENCE_MS = 10_000;

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
      running.watch(late[side].id());
      running.watch(newest[side].id());
    }
    emitted = context.longAccumulator("streamjoin.emitted");
    running.watch(emitted.id());
    context.addSparkListener(running);
  }

  /** Name of an accumulator in Spark's events. */
  public static String name(String count, int side) {
    return "streamjoin." + count + "." + SIDES[side];
  }

  public void close() {
    context.removeSparkListener(running);
  }

  /** Called when an interval begins. */
  public void beginInterval() {
    running.beginInterval(SILENCE_MS);
  }

  /** Whether the executors of all running tasks have sent a heartbeat lately. */
  public boolean tasksAreAlive() {
    return running.areAlive(SILENCE_MS);
  }

  /** Late rows of the running interval, as of the last heartbeats of its tasks. */
  public long lateInInterval(int side) {
    return running.sum(late[side].id());
  }

  /** Rows that the join has emitted in the running interval, before output.filter. */
  public long emittedInInterval() {
    return running.sum(emitted.id());
  }

  /**
   * Newest event time in the running interval, in milliseconds since 1970. Null: no row has
   * arrived.
   */
  public Long newestInInterval(int side) {
    long micros = running.max(newest[side].id());
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
