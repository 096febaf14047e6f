package streamjoin;

import org.apache.spark.util.AccumulatorV2;

/** The newest event time, in microseconds since 1970. */
final class NewestTime extends AccumulatorV2<Long, Long> {
  static final long NONE = Long.MIN_VALUE;

  private long micros = NONE;

  @Override
  public boolean isZero() {
    return micros == NONE;
  }

  @Override
  public AccumulatorV2<Long, Long> copy() {
    NewestTime copy = new NewestTime();
    copy.micros = micros;
    return copy;
  }

  @Override
  public void reset() {
    micros = NONE;
  }

  void add(long other) {
    micros = Math.max(micros, other);
  }

  @Override
  public void add(Long other) {
    add(other.longValue());
  }

  @Override
  public void merge(AccumulatorV2<Long, Long> other) {
    add(other.value().longValue());
  }

  @Override
  public Long value() {
    return micros;
  }
}
