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
  static final DeliveredRows NOTHING = new DeliveredRows(Set.of(), Long.MIN_VALUE, "left");

  /** Ends the id of the dead letter of a late row. */
  private static final String LATE_SUFFIX = "/late";

  /** The last watermark by which the interval has evicted delivered rows, in milliseconds. */
  final long watermark;

  /** Positions of rows by side, in the order of the join. */
  private final List<Set<Long>> late = List.of(new HashSet<>(), new HashSet<>());

  private final List<Set<Long>> unmatched = List.of(new HashSet<>(), new HashSet<>());

  /**
   * @param ids of results and dead letters (job/plan/result_id.py, job/dataflow/sides.py)
   * @param firstSide the side of the spec that is the left one of the join
   */
  public DeliveredRows(Set<String> ids, long watermark, String firstSide) {
    this.watermark = watermark;
    for (String id : ids) {
      int bar = id.indexOf('|');
      if (bar < 0 && id.endsWith(LATE_SUFFIX)) {
        addLetter(id.split("/"), firstSide);
      } else if (bar > 0 && (bar == id.length() - 1 || id.charAt(bar + 1) == '/')) {
        unmatched.get(sideOf("left", firstSide)).add(position(id.substring(0, bar)));
      } else if (bar == 0) {
        unmatched.get(sideOf("right", firstSide)).add(position(id.substring(1)));
      }
    }
  }

  /** Those of the slot of the running task. */
  static DeliveredRows ofTask(String firstSide) {
    TransactionSlot slot = TransactionSlot.ofTask();
    return slot == null ? NOTHING : slot.deliveredRows(firstSide);
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

  private void addLetter(String[] parts, String firstSide) {
    if (parts.length == 3) {
      late.get(sideOf(parts[0], firstSide)).add(Long.parseLong(parts[1]));
    }
  }

  private static int sideOf(String name, String firstSide) {
    return name.equals(firstSide) ? JoinRules.LEFT : JoinRules.RIGHT;
  }

  /** `place`: topic, partition and offset. In real time a side has one topic. */
  private static long position(String place) {
    String[] parts = place.split("/");
    return (Long.parseLong(parts[1]) << StoredRow.OFFSET_BITS) + Long.parseLong(parts[2]);
  }
}
