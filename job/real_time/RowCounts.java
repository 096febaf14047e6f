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

  public RowCounts(SparkContext context) {
    for (int side = 0; side < SIDES.length; side++) {
      late[side] = context.longAccumulator(name("late", side));
      stored[side] = context.longAccumulator(name("stored", side));
      removed[side] = context.longAccumulator(name("removed", side));
    }
  }

  /** Of accumulators, as Spark's events name them. */
  public static String name(String count, int side) {
    return "streamjoin." + count + "." + SIDES[side];
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
