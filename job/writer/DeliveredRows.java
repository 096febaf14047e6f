package streamjoin;

import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * What an interrupted interval has delivered, for the join that repeats it.
 *
 * <p>The watermark has advanced in the interval, and its repetition begins with that of its begin:
 * without this, a row that was emitted as unmatched could be in a pair. And the repetition of a join
 * with a table, or of one that picks, may find another match of a row: without this, a row whose
 * result has become a dead letter could also have a result, and the other way round.
 */
public final class DeliveredRows {
  static final DeliveredRows NOTHING =
      new DeliveredRows(Set.of(), Long.MIN_VALUE, Inputs.OF_ONE_TOPIC_EACH);

  /** Ends the id of the dead letter of a late row. */
  private static final String LATE_SUFFIX = "/late";

  /** The last watermark by which the interval has evicted delivered rows, in milliseconds. */
  final long watermark;

  /** Positions of rows by side, in the order of the join. */
  private final List<Set<Long>> late = List.of(new HashSet<>(), new HashSet<>());

  private final List<Set<Long>> unmatched = List.of(new HashSet<>(), new HashSet<>());

  /** @param ids of results and dead letters (job/plan/result_id.py, job/dataflow/sides.py) */
  public DeliveredRows(Set<String> ids, long watermark, Inputs inputs) {
    this.watermark = watermark;
    for (String id : ids) {
      int bar = id.indexOf('|');
      if (bar < 0 && id.endsWith(LATE_SUFFIX)) {
        addLetter(id.split("/"), inputs);
      } else if (bar > 0 && (bar == id.length() - 1 || id.charAt(bar + 1) == '/')) {
        addUnmatched(inputs.sideOf("left"), id.substring(0, bar), inputs);
      } else if (bar == 0) {
        addUnmatched(inputs.sideOf("right"), id.substring(1), inputs);
      }
    }
  }

  /** Those of the slot of the running task. */
  static DeliveredRows ofTask(Inputs inputs) {
    TransactionSlot slot = TransactionSlot.ofTask();
    return slot == null ? NOTHING : slot.deliveredRows(inputs);
  }

  /** Whether the row at the position was late. */
  public boolean wasLate(int side, long position) {
    return has(late, side, position);
  }

  /**
   * Whether a result, or the dead letter of a result, has an id with only the row at the position: in
   * an outer join it was unmatched. In a join with a table, or one that picks, it may have a match.
   */
  public boolean wasUnmatched(int side, long position) {
    return has(unmatched, side, position);
  }

  boolean hasUnmatched(int side) {
    return !unmatched.get(side).isEmpty();
  }

  private static boolean has(List<Set<Long>> rows, int side, long position) {
    Set<Long> ofSide = rows.get(side);
    return !ofSide.isEmpty() && ofSide.contains(position);
  }

  private void addLetter(String[] parts, Inputs inputs) {
    if (parts.length == 3) {
      late.get(inputs.sideOf(parts[0])).add(Long.parseLong(parts[1]));
    }
  }

  private void addUnmatched(int side, String place, Inputs inputs) {
    unmatched.get(side).add(inputs.position(side, place));
  }
}
