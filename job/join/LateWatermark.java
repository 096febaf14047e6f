package streamjoin;

import org.apache.spark.TaskContext;

/** The watermark by which rows of a micro-batch are late: that of the previous batch. */
final class LateWatermark {
  /** Local property of the Spark jobs of a batch, set by the driver, in milliseconds since 1970. */
  private static final String PROPERTY = "streamjoin.late_watermark_ms";

  private LateWatermark() {}

  static long ofBatch() {
    String value = TaskContext.get().getLocalProperty(PROPERTY);
    if (value == null) {
      throw new IllegalStateException(PROPERTY + " is not set for the jobs of this batch");
    }
    return Long.parseLong(value);
  }
}
