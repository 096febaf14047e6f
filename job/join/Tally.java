package streamjoin;

import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.util.AccumulatorV2;

/**
 * Rows that meet each of some conditions, counted while a task runs: the heartbeats of the executors
 * contain the numbers. They do not contain the metrics of DataFrame.observe().
 */
public final class Tally extends AccumulatorV2<Long, long[]> {
  private long[] counts;

  /** @param conditions their number, at most 63 */
  Tally(int conditions) {
    counts = new long[conditions];
  }

  /** A condition that is true for every row. `met`: the conditions that the row meets, as bits. */
  public Column counted(Column met) {
    return ExpressionUtils.column(
        new Invoke(
            Literal.fromObject(this, new ObjectType(Tally.class)),
            "count",
            DataTypes.BooleanType,
            InternalRows.seq(List.of(ExpressionUtils.expression(met))),
            InternalRows.seq(List.of()),
            false,
            false,
            false));
  }

  /** Called by the expression in `counted`. */
  public boolean count(long met) {
    for (long left = met; left != 0; left &= left - 1) {
      counts[Long.numberOfTrailingZeros(left)]++;
    }
    return true;
  }

  @Override
  public boolean isZero() {
    for (long count : counts) {
      if (count != 0) {
        return false;
      }
    }
    return true;
  }

  @Override
  public AccumulatorV2<Long, long[]> copy() {
    Tally copy = new Tally(counts.length);
    copy.counts = value();
    return copy;
  }

  @Override
  public void reset() {
    counts = new long[counts.length];
  }

  @Override
  public void add(Long met) {
    count(met);
  }

  @Override
  public void merge(AccumulatorV2<Long, long[]> other) {
    long[] others = other.value();
    for (int i = 0; i < counts.length; i++) {
      counts[i] += others[i];
    }
  }

  @Override
  public long[] value() {
    return counts.clone();
  }
}
