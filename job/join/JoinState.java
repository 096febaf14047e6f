package streamjoin;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * The rows of one state partition: slots on the heap, and below them the state store.
 *
 * <pre>
 *               slots of a side, by time
 *   heap     [         ][ rows ][ rows ][ rows ]
 *   store    [ entries ][ entries ][       ][       ]
 *             spilled    loaded     not written yet
 * </pre>
 *
 * <p>A slot on the heap has all of its rows there, and a probe of it reads nothing from the store.
 * Its new rows are written at the end of the batch, unless they have expired. Other slots are loaded
 * once a probe needs them. If the heap's limit is reached, the slots that were used least are
 * written and leave the heap. A probe of them reads one list of the store.
 */
final class JoinState {
  private final List<List<Slot>> slots = List.of(new ArrayList<>(), new ArrayList<>());
  private final long bytesMax;
  private JoinRules rules;
  private SlotStore[] stores;

  /** Rows that expire at this watermark or before it have been evicted. */
  private long evictedAt;

  /** Of the slots on the heap, and of the filters. */
  private long bytes;

  /** The store has these entries. `bytesMax`: limit of the heap. */
  JoinState(JoinRules rules, SlotStore[] stores, long bytesMax) {
    this.rules = rules;
    this.bytesMax = bytesMax;
    this.stores = stores;
    for (int side = JoinRules.LEFT; side <= JoinRules.RIGHT; side++) {
      for (long number : stores[side].slots()) {
        slots.get(side).add(new Slot(side, number, null));
      }
    }
  }

  /** Call it when a task begins. */
  void begin(JoinRules rules, SlotStore[] stores) {
    this.rules = rules;
    this.stores = stores;
  }

  /** Call it after the last write of a task. */
  void end() {
    stores = null;
  }

  void setEvictedAt(long watermark) {
    evictedAt = watermark;
  }

  SlotStore store(Slot slot) {
    return stores[slot.side];
  }

  /** The slots of a side, by time. */
  List<Slot> slots(int side) {
    return slots.get(side);
  }

  /** Null: the side has no rows there. */
  Slot slot(int side, long number) {
    int place = place(side, number);
    return place < 0 ? null : slots.get(side).get(place);
  }

  /** The rows of a slot. Null: they are only in the store. */
  SlotRows rows(Slot slot) {
    if (slot.rows == null && bytes + slot.size <= bytesMax) {
      load(slot);
    }
    return slot.rows;
  }

  /** The rows of a key in a slot that is not on the heap, in a new list. */
  List<StoredRow> read(Slot slot, UnsafeRow key, int hash) {
    if (slot.filter != null && !slot.filter.mayContain(hash)) {
      return new ArrayList<>();
    }
    key.setLong(0, slot.number);
    List<StoredRow> found = store(slot).read(key);
    if (!found.isEmpty()) {
      slot.uses++;
    }
    return found;
  }

  void markMatched(Slot slot, UnsafeRow key, StoredRow row) {
    key.setLong(0, slot.number);
    store(slot).markMatched(key, row);
  }

  void add(int side, long number, UnsafeRow key, int hash, StoredRow row) {
    rules.counts.stored[side].add(1);
    int place = place(side, number);
    Slot slot;
    if (place < 0) {
      slot = new Slot(side, number, new SlotRows(rules.rowSchemas[side].length()));
      slots.get(side).add(-place - 1, slot);
      resize(slot, slot.rows.bytes());
    } else {
      slot = slots.get(side).get(place);
    }
    slot.uses++;
    key.setLong(0, number);
    if (rows(slot) == null) {
      if (slot.filter != null) {
        slot.filter.add(hash);
      }
      store(slot).append(key, row);
      return;
    }
    slot.rows.add(key, hash, row);
    resize(slot, slot.rows.bytes());
    while (bytes > bytesMax && spillLeastUsed()) {}
  }

  /** Removes a slot whose rows have all expired. */
  void remove(Slot slot) {
    if (slot.isStored) {
      store(slot).remove(slot.number);
    }
    slots.get(slot.side).remove(slot);
    bytes -= slot.rows == null ? filterBytes(slot) : slot.size;
  }

  long count(Slot slot) {
    if (slot.rows != null) {
      return slot.rows.count();
    }
    long[] count = {0};
    store(slot)
        .readLists(
            slot.number,
            null,
            (key, list) -> {
              count[0] += list.size();
              return true;
            });
    return count[0];
  }

  /** Writes what the store does not have yet. */
  void write() {
    for (List<Slot> ofSide : slots) {
      for (Slot slot : ofSide) {
        slot.uses /= 2;
        write(slot);
      }
    }
  }

  private void write(Slot slot) {
    if (slot.rows != null && !slot.rows.isWritten()) {
      slot.rows.write(store(slot), evictedAt);
      slot.isStored = true;
    }
  }

  private void load(Slot slot) {
    SlotRows rows = new SlotRows(rules.rowSchemas[slot.side].length());
    UnsafeRow last =
        store(slot)
            .readLists(
                slot.number,
                null,
                (key, list) -> {
                  int hash = SlotRows.hash(key);
                  for (StoredRow row : list) {
                    rows.add(key, hash, row);
                  }
                  slot.size = Math.max(slot.size, rows.bytes());
                  while (bytes + slot.size > bytesMax && spillLeastUsed()) {}
                  return bytes + slot.size <= bytesMax;
                });
    if (last != null) {
      slot.size *= 2; // It has more rows, so it is loaded once there is more room.
      return;
    }
    rows.setWritten();
    bytes -= filterBytes(slot);
    slot.filter = null;
    slot.size = 0;
    slot.rows = rows;
    resize(slot, rows.bytes());
  }

  /** False: no slot can leave the heap. */
  private boolean spillLeastUsed() {
    Slot least = null;
    for (List<Slot> ofSide : slots) {
      for (Slot slot : ofSide) {
        boolean canLeave = slot.rows != null && !slot.isPinned;
        if (canLeave && (least == null || usesPerByte(slot) < usesPerByte(least))) {
          least = slot;
        }
      }
    }
    if (least == null) {
      return false;
    }
    write(least);
    bytes -= least.size;
    least.filter = least.rows.filter();
    least.rows = null;
    bytes += filterBytes(least);
    return true;
  }

  private static double usesPerByte(Slot slot) {
    return (double) slot.uses / slot.size;
  }

  private void resize(Slot slot, long size) {
    bytes += size - slot.size;
    slot.size = size;
  }

  private static long filterBytes(Slot slot) {
    return slot.filter == null ? 0 : slot.filter.bytes();
  }

  /** The place of a slot in the list of its side; -(place + 1) if it is not in the list. */
  private int place(int side, long number) {
    List<Slot> ofSide = slots.get(side);
    int low = 0;
    int high = ofSide.size() - 1;
    while (low <= high) {
      int middle = (low + high) >>> 1;
      long found = ofSide.get(middle).number;
      if (found == number) {
        return middle;
      }
      if (found < number) {
        low = middle + 1;
      } else {
        high = middle - 1;
      }
    }
    return -(low + 1);
  }
}
