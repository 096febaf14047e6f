package streamjoin;

import java.util.ArrayDeque;
import java.util.List;
import java.util.Queue;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * Emits the unmatched rows of a partition that have expired at a watermark, or the results of its
 * left rows if they wait for them, and removes slots.
 *
 * <p>Rows that arrive meanwhile expire later.
 */
final class Eviction {
  private final JoinRules rules;
  private final JoinState state;

  private final ResultOfExpired results;

  /** Watermark of the previous eviction. */
  private final long previous;

  private final long watermark;

  /** Slots that may have rows that expire. */
  private final Queue<Slot> due = new ArrayDeque<>();

  /** Rows of the first slot that have not been evicted, if it is on the heap. */
  private SlotRows rows;

  /** Those that expire. */
  private int[] expiring;

  private int next;

  private boolean readsStore;

  /** The last key that was evicted, if the slot is not on the heap. */
  private UnsafeRow lastKey;

  /** `results`: of the left rows, if they wait for their results. */
  Eviction(
      JoinRules rules, JoinState state, ResultOfExpired results, long previous, long watermark) {
    this.rules = rules;
    this.state = state;
    this.results = results;
    this.previous = previous;
    this.watermark = watermark;
    if (previous == watermark) {
      return;
    }
    for (int list = 0; list < JoinRules.LISTS; list++) {
      if (!rules.stores(list) || !rules.expires(list)) {
        continue;
      }
      for (Slot slot : state.slots(list)) {
        if (rules.firstExpiry(slot) > watermark) {
          break;
        }
        due.add(slot);
      }
    }
  }

  long watermark() {
    return watermark;
  }

  /** The watermark up to which all rows have been evicted. */
  long evictedUntil() {
    return hasEnded() ? watermark : previous;
  }

  /** Whether nothing is left to evict. */
  boolean hasEnded() {
    return due.isEmpty();
  }

  /** Whether a slot is not on the heap, so that each eviction reads all of its rows. */
  boolean readsStore() {
    return readsStore;
  }

  /** Evicts up to `count` rows, or lists of the store. False: nothing is left. */
  boolean evict(int count, List<InternalRow> output) {
    int left = count;
    while (left > 0 && !due.isEmpty()) {
      left = evict(due.peek(), left, output);
    }
    return !due.isEmpty();
  }

  /** Returns how many of `count` are left. */
  private int evict(Slot slot, int count, List<InternalRow> output) {
    boolean isOver = rules.lastExpiry(slot) <= watermark;
    if (!rules.emitsExpired(slot.side)) {
      if (isOver) {
        rules.counts.removed[slot.side].add(state.count(slot));
      }
      end(slot, isOver);
      return count - 1;
    }
    if (rows == null && lastKey == null) {
      begin(slot);
    }
    int left = rows == null ? evictStored(slot, count, output) : evictRows(slot, count, output);
    if (left > 0) {
      end(slot, isOver);
    }
    return left;
  }

  private void begin(Slot slot) {
    rows = state.rowsToEvict(slot);
    if (rows == null) {
      readsStore = true;
      return;
    }
    slot.isPinned = true;
    expiring = rows.expiring(rules.firstExpiry(slot) - 1, previous, watermark);
    next = 0;
  }

  private void end(Slot slot, boolean isOver) {
    due.remove();
    rows = null;
    lastKey = null;
    slot.isPinned = false;
    if (isOver) {
      state.remove(slot);
    }
  }

  private int evictRows(Slot slot, int count, List<InternalRow> output) {
    int left = count;
    while (left > 0 && next < expiring.length) {
      int row = expiring[next++];
      if (rows.isRemoved(row)) {
        continue;
      }
      rules.counts.removed[slot.side].add(1);
      left--;
      if (rows.isMatched(row)) {
        continue;
      }
      if (rules.waits()) {
        UnsafeRow key = rows.keyOf(row, rules.keySchema.length()).copy();
        results.emit(key, SlotRows.hash(key), rows.row(row), output);
      } else {
        output.add(rules.unmatched(slot.side, rows.columns(row)));
      }
    }
    return left;
  }

  private int evictStored(Slot slot, int count, List<InternalRow> output) {
    int[] left = {count};
    lastKey =
        state
            .store(slot)
            .readLists(
                slot.number,
                lastKey,
                (key, list) -> {
                  for (StoredRow row : list) {
                    evict(slot.side, key, row, output);
                  }
                  return --left[0] > 0;
                });
    return lastKey == null ? Math.max(1, left[0]) : 0;
  }

  private void evict(int side, UnsafeRow key, StoredRow row, List<InternalRow> output) {
    if (row.expiresAt > previous && row.expiresAt <= watermark) {
      rules.counts.removed[side].add(1);
      if (!row.matched && rules.waits()) {
        results.emit(key.copy(), SlotRows.hash(key), row, output);
      } else if (!row.matched) {
        output.add(rules.unmatched(side, row.row));
      }
    }
  }
}
