package streamjoin;

import java.io.Serializable;
import org.apache.spark.sql.types.StructType;

/** How a side drops duplicates. processor.py derives it from the JoinPlan. */
public final class IdRules implements Serializable {
  /** Columns that identify an event. */
  final StructType schema;

  /** Largest distance of the event times of two duplicates, in microseconds. */
  final long within;

  /** Largest distance of their slot times: 0 if the two must be in one tumbling window. */
  final long reach;

  /** The time from the slot time of a row to the expiry of its id, in milliseconds. */
  final long kept;

  /** Length of a slot in microseconds. */
  final long slotLength;

  public IdRules(StructType schema, long within, long reach, long kept, long slotLength) {
    this.schema = schema;
    this.within = within;
    this.reach = reach;
    this.kept = kept;
    this.slotLength = slotLength;
  }
}
