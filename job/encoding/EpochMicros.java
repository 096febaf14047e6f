package streamjoin;

/**
 * Converts timestamps to microseconds since 1970. A result outside BIGINT is clamped, as in
 * times.py.
 */
final class EpochMicros {
  private static final long MICROS_PER_SECOND = 1_000_000;
  private static final int NANOS_PER_MICRO = 1_000;

  private EpochMicros() {}

  static Long of(Long value, long unitMicros) {
    return value == null ? null : (Long) of(value, unitMicros, 0);
  }

  static long ofSeconds(long seconds, int nanos) {
    return of(seconds, MICROS_PER_SECOND, Math.floorDiv(nanos, NANOS_PER_MICRO));
  }

  private static long of(long value, long unitMicros, long more) {
    try {
      long micros = Math.addExact(Math.multiplyExact(value, unitMicros), more);
      return Math.max(micros, -Long.MAX_VALUE);
    } catch (ArithmeticException error) {
      return value > 0 ? Long.MAX_VALUE : -Long.MAX_VALUE;
    }
  }
}
