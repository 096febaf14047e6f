package streamjoin;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.StructType;

/**
 * Finds the duplicates of a side: rows with the key and the id of an earlier row, if the event times
 * are near enough.
 *
 * <p>The ids of the rows that were joined are in the state, as rows without columns. The key of the
 * join and the id are their key.
 */
final class Duplicates {
  private final JoinRules rules;
  private final JoinState state;
  private final IdRules ids;
  private final int side;

  /** The ids in state: JoinRules.ids(side). */
  private final int stored;

  private final JoinedRow keyAndId = new JoinedRow();
  private final UnsafeProjection keyProjection;
  private final UnsafeRow noColumns;

  Duplicates(JoinRules rules, JoinState state, int side) {
    this.rules = rules;
    this.state = state;
    this.side = side;
    stored = JoinRules.ids(side);
    ids = rules.ids[side];
    keyProjection = UnsafeProjection.create(rules.keySchemas[stored]);
    noColumns = UnsafeProjection.create(new StructType()).apply(new GenericInternalRow(0)).copy();
  }

  /**
   * Whether the row is a duplicate. If it is none, its id is stored. `key`: of the join. A row with a
   * null in its id is never a duplicate, and its id is not stored.
   */
  boolean isDuplicate(InternalRow key, InputRow input) {
    InternalRow id = input.id();
    if (id == null) {
      return false;
    }
    UnsafeRow idKey = keyProjection.apply(keyAndId.apply(key, id));
    int hash = SlotRows.hash(idKey);
    long eventTime = input.eventTime();
    long slotTime = input.slotTime();
    for (Slot slot : state.slots(stored, slotTime - ids.reach, slotTime + ids.reach)) {
      if (has(slot, idKey, hash, eventTime)) {
        rules.counts.duplicates[side].add(1);
        return true;
      }
    }
    long expiresAt = JoinRules.ceilMillis(slotTime) + ids.kept;
    StoredRow row = new StoredRow(eventTime, expiresAt, input.position(), false, noColumns);
    state.add(stored, rules.slot(stored, slotTime, hash), idKey, hash, row);
    return false;
  }

  private boolean has(Slot slot, UnsafeRow idKey, int hash, long eventTime) {
    SlotRows rows = state.rows(slot);
    if (rows == null) {
      for (StoredRow row : state.read(slot, idKey, hash)) {
        if (isNear(row.eventTime, eventTime)) {
          slot.uses++;
          return true;
        }
      }
      return false;
    }
    for (int row = rows.first(idKey, hash); row != SlotRows.NONE; row = rows.next(row)) {
      if (isNear(rows.eventTime(row), eventTime)) {
        slot.uses++;
        return true;
      }
    }
    return false;
  }

  private boolean isNear(long one, long other) {
    return Math.abs(one - other) <= ids.within;
  }
}
