package streamjoin;

import java.util.List;
import java.util.function.BiPredicate;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/** Chooses the match of a left row whose window has passed, of the right rows in the window. */
final class Picking implements ResultOfExpired {
  private final JoinRules rules;
  private final JoinState state;
  private final BiPredicate<InternalRow, InternalRow> condition;

  private StoredRow left;
  private InternalRow best;
  private long bestDistance;
  private long bestPosition;

  /** `condition`: of a left and a right row. */
  Picking(JoinRules rules, JoinState state, BiPredicate<InternalRow, InternalRow> condition) {
    this.rules = rules;
    this.state = state;
    this.condition = condition;
  }

  @Override
  public void emit(UnsafeRow key, int hash, StoredRow left, List<InternalRow> output) {
    this.left = left;
    best = null;
    for (Slot slot : state.slotsOfMatches(JoinRules.RIGHT, left.eventTime, hash)) {
      probe(slot, key, hash);
    }
    if (best != null) {
      output.add(rules.pair(left.row, best));
    } else if (rules.padsUnmatched[JoinRules.LEFT]) {
      output.add(rules.unmatched(JoinRules.LEFT, left.row));
    }
  }

  private void probe(Slot slot, UnsafeRow key, int hash) {
    SlotRows rows = state.rows(slot);
    if (rows == null) {
      for (StoredRow row : state.read(slot, key, hash)) {
        consider(row.eventTime, row.position, row.row);
      }
      return;
    }
    int row = rows.first(key, hash);
    slot.uses += row == SlotRows.NONE ? 0 : 1;
    for (; row != SlotRows.NONE; row = rows.next(row)) {
      consider(rows.eventTime(row), rows.position(row), rows.columns(row));
    }
  }

  private void consider(long eventTime, long position, InternalRow row) {
    long distance = eventTime - left.eventTime;
    boolean isBetter =
        best == null
            || rules.pick.isBetter(distance, bestDistance)
            || (distance == bestDistance && position > bestPosition);
    if (isBetter
        && distance >= rules.lower
        && distance <= rules.upper
        && condition.test(left.row, row)) {
      best = row;
      bestDistance = distance;
      bestPosition = position;
    }
  }
}
