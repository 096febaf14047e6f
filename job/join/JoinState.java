package streamjoin;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.function.UnaryOperator;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * The rows of one state partition: slots on the heap, and below them the state store.
 *
 * <pre>
 *               slots of a list, by time
 *   heap     [         ][ rows ][ rows ][ rows ]
 *   store    [ entries ][ entries ][       ][       ]
 *             spilled    loaded     not written yet
 * </pre>
 *
 * <p>A slot on the heap has all of its rows there, and a probe of it reads nothing from the store.
 * Its new rows are written at the end of the batch. If the heap's limit is reached, the slots that
 * were used least are written and leave the heap. A probe of them reads one list of the store. They
 * are loaded again once there is much room, because a slot that is loaded and spilled in turn costs
 * more than the lists.
 */
final class JoinState {
  /** Parts of the limit: up to which slots are spilled, and up to which a probe loads one. */
  private static final double SPILLED_TO = 0.8;

  private static final double LOADED_TO = 0.7;

  /** By list: the rows of the two sides, and the ids of those that drop duplicates. */
  private final List<List<Slot>> slots = new ArrayList<>();

  private final long bytesMax;
  private JoinRules rules;
  private SlotStore[] stores;

  /** Rows that expire at this watermark or before it have been evicted. */
  private long evictedAt;

  /** Of the slots on the heap, and of the filters. */
  private long bytes;

  /** Newest event time of a row of the stream that was joined with a table. */
  long newestJoined = Long.MIN_VALUE;

  /** The place of the slot that is swept next. */
  private int swept;

  /** Probes of slots on the heap in this task, by side of the slot. */
  private final long[] heapProbes = new long[JoinRules.LISTS];

  /** The state with the entries of the store. `bytesMax`: limit of the heap. */
  JoinState(JoinRules rules, SlotStore[] stores, long bytesMax) {
    this.bytesMax = bytesMax;
    begin(rules, stores);
    for (int list = 0; list < JoinRules.LISTS; list++) {
      slots.add(new ArrayList<>());
      if (rules.stores(list)) {
        for (long number : stores[list].slots()) {
          slots.get(list).add(new Slot(list, number, null));
        }
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
    for (int list = 0; list < JoinRules.LISTS; list++) {
      long rows = 0;
      for (Slot slot : slots.get(list)) {
        rows += slot.rows == null ? 0 : slot.rows.count();
      }
      rules.counts.onHeap[list].add(rows);
      rules.counts.heapProbes[list].add(heapProbes[list]);
      heapProbes[list] = 0;
    }
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

  /**
   * The slots of a side that can contain a match for a row of the other side. Valid until a row is
   * added to the side. `hash`: that of the key.
   */
  List<Slot> slotsOfMatches(int side, long otherTime, int hash) {
    long first = rules.firstSlot(side, otherTime, hash);
    return between(side, first, rules.lastSlot(side, otherTime, hash));
  }

  /** The slots of a list whose rows expire, with slot times between the two. Valid as above. */
  List<Slot> slots(int list, long firstTime, long lastTime) {
    return between(list, rules.slot(list, firstTime, 0), rules.slot(list, lastTime, 0));
  }

  private List<Slot> between(int list, long firstNumber, long lastNumber) {
    int first = place(list, firstNumber);
    int last = place(list, lastNumber);
    return slots
        .get(list)
        .subList(first < 0 ? -first - 1 : first, last < 0 ? -last - 1 : last + 1);
  }

  /** Null: the side has no rows there. */
  Slot slot(int side, long number) {
    int place = place(side, number);
    return place < 0 ? null : slots.get(side).get(place);
  }

  /** The rows of a slot, for a probe. Null: they are only in the store. */
  SlotRows rows(Slot slot) {
    if (slot.rows == null && bytes + slot.size <= LOADED_TO * bytesMax) {
      load(slot, LOADED_TO * bytesMax, false);
    }
    if (slot.rows != null) {
      heapProbes[slot.side]++;
    }
    return slot.rows;
  }

  /**
   * The rows of a slot whose rows expire. They stay on the heap, because each batch needs them. Null:
   * the slot is larger than the limit.
   */
  SlotRows rowsToEvict(Slot slot) {
    if (slot.rows == null && slot.size <= bytesMax) {
      load(slot, bytesMax, true);
    }
    return slot.rows;
  }

  /** The rows of a key in a slot that is not on the heap, in a new list. */
  List<StoredRow> read(Slot slot, UnsafeRow key, int hash) {
    if (slot.filter != null && !slot.filter.mayContain(hash)) {
      return new ArrayList<>();
    }
    key.setLong(0, slot.number);
    rules.counts.storeProbes[slot.side].add(1);
    return store(slot).read(key);
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
    } else {
      slot = slots.get(side).get(place);
    }
    slot.uses++;
    key.setLong(0, number);
    if (slot.rows == null) {
      addToStore(slot, key, hash, row);
      return;
    }
    slot.rows.add(key, hash, row);
    resize(slot, slot.rows.bytes());
    if (bytes > bytesMax) {
      spill();
    }
  }

  /** The rows of a key of a table, in a new list. */
  List<StoredRow> rows(int side, long number, UnsafeRow key, int hash) {
    Slot slot = slot(side, number);
    if (slot == null) {
      return new ArrayList<>();
    }
    SlotRows rows = rows(slot);
    List<StoredRow> found = rows == null ? read(slot, key, hash) : rows.rowsOf(key, hash);
    slot.uses += found.isEmpty() ? 0 : 1;
    return found;
  }

  /** Replaces the rows of a key of a table. `before`: how many it has. */
  void replace(
      int side, long number, UnsafeRow key, int hash, int before, List<StoredRow> rows) {
    if (before == 0) {
      for (StoredRow row : rows) {
        add(side, number, key, hash, row);
      }
      return;
    }
    rules.counts.removed[side].add(before);
    rules.counts.stored[side].add(rows.size());
    Slot slot = slot(side, number);
    slot.uses++;
    key.setLong(0, number);
    if (slot.rows == null) {
      slot.count = Slot.UNKNOWN;
      store(slot).replace(key, rows);
      return;
    }
    slot.rows.replace(key, hash, rows);
    resize(slot, slot.rows.bytes());
    if (bytes > bytesMax) {
      spill();
    }
  }

  /**
   * Replaces the rows of the keys of a table by those that `kept` returns, where they are fewer: in
   * some slots with at least `count` rows, or in all. The next call goes on with the next slots.
   */
  void sweep(int side, long count, UnaryOperator<List<StoredRow>> kept) {
    long left = count;
    for (int done = slots.get(side).size(); done > 0 && left > 0; done--) {
      swept = swept < slots.get(side).size() ? swept : 0;
      Slot slot = slots.get(side).get(swept++);
      left -= Math.max(1, count(slot));
      sweep(slot, kept);
    }
  }

  private void sweep(Slot slot, UnaryOperator<List<StoredRow>> kept) {
    List<UnsafeRow> keys = new ArrayList<>();
    List<List<StoredRow>> lists = new ArrayList<>();
    SlotStore.ListReader collect =
        (key, list) -> {
          if (kept.apply(list).size() < list.size()) {
            keys.add(key);
            lists.add(list);
          }
          return true;
        };
    if (slot.rows == null) {
      store(slot).readLists(slot.number, null, collect);
    } else {
      slot.rows.readLists(rules.keySchemas[slot.side].length(), collect);
    }
    for (int i = 0; i < keys.size(); i++) {
      UnsafeRow key = keys.get(i).copy(); // It may be in the array of a row that leaves.
      int hash = SlotRows.hash(key);
      replace(slot.side, slot.number, key, hash, lists.get(i).size(), kept.apply(lists.get(i)));
    }
  }

  /** Removes the rows that an interrupted interval has emitted as unmatched. */
  void remove(DeliveredRows delivered) {
    for (int side = JoinRules.LEFT; side <= JoinRules.RIGHT; side++) {
      if (!rules.emitsExpired(side) || !delivered.hasUnmatched(side)) {
        continue;
      }
      for (Slot slot : slots.get(side)) {
        if (rules.firstExpiry(slot) > delivered.watermark) {
          break;
        }
        remove(slot, delivered);
      }
    }
  }

  private void remove(Slot slot, DeliveredRows delivered) {
    int side = slot.side;
    SlotRows rows = rowsToEvict(slot);
    if (rows != null) {
      int removed = rows.remove(position -> delivered.wasUnmatched(side, position));
      rules.counts.removed[side].add(removed);
      return;
    }
    SlotStore store = store(slot);
    List<StoredRow> found = new ArrayList<>();
    List<UnsafeRow> keys = new ArrayList<>();
    store.readLists(
        slot.number,
        null,
        (key, list) -> {
          for (StoredRow row : list) {
            if (delivered.wasUnmatched(side, row.position)) {
              found.add(row);
              keys.add(key);
            }
          }
          return true;
        });
    for (int i = 0; i < found.size(); i++) {
      store.markRemoved(keys.get(i), found.get(i));
    }
    slot.count = Slot.UNKNOWN;
    rules.counts.removed[side].add(found.size());
  }

  private void addToStore(Slot slot, UnsafeRow key, int hash, StoredRow row) {
    store(slot).append(key, row);
    if (slot.count != Slot.UNKNOWN) {
      slot.count++;
    }
    if (slot.filter != null && !slot.filter.add(hash)) {
      bytes -= slot.filter.bytes();
      slot.filter = null;
    }
  }

  /** Removes a slot whose rows have all expired. */
  void remove(Slot slot) {
    if (slot.isStored) {
      store(slot).remove(slot.number);
    }
    slots.get(slot.side).remove(slot);
    bytes -= slot.rows == null ? filterBytes(slot) : slot.size;
  }

  /** The number of rows of a slot. */
  long count(Slot slot) {
    if (slot.rows != null) {
      return slot.rows.count();
    }
    if (slot.count == Slot.UNKNOWN) {
      slot.count = 0;
      store(slot)
          .readLists(
              slot.number,
              null,
              (key, list) -> {
                slot.count += list.size();
                return true;
              });
    }
    return slot.count;
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
    if (slot.rows != null && slot.rows.isSparse()) {
      slot.rows = slot.rows.compacted(rules.keySchemas[slot.side].length());
      resize(slot, slot.rows.bytes());
    }
  }

  /**
   * Reads the rows of a slot, if the heap then has at most `limit` bytes. `spills`: whether other
   * slots leave the heap for it.
   */
  private void load(Slot slot, double limit, boolean spills) {
    SlotRows rows = new SlotRows(rules.rowSchemas[slot.side].length());
    slot.isPinned = true;
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
                  if (spills && bytes + slot.size > limit) {
                    spill(limit - slot.size);
                  }
                  return bytes + slot.size <= limit;
                });
    slot.isPinned = false;
    if (last != null) {
      slot.size *= 2; // It has more rows than these.
      return;
    }
    rows.setWritten();
    rules.counts.slotsLoaded[slot.side].add(1);
    bytes -= filterBytes(slot);
    slot.filter = null;
    slot.rows = rows;
    slot.size = 0;
    resize(slot, rows.bytes());
  }

  private void spill() {
    spill(SPILLED_TO * bytesMax);
  }

  /**
   * Spills slots until the heap has at most `limit` bytes: first those that were used least, last
   * those whose rows expire.
   */
  private void spill(double limit) {
    List<Slot> onHeap = new ArrayList<>();
    for (List<Slot> ofSide : slots) {
      for (Slot slot : ofSide) {
        if (slot.rows != null && !slot.isPinned) {
          onHeap.add(slot);
        }
      }
    }
    onHeap.sort(
        Comparator.<Slot, Boolean>comparing(this::isExpiring)
            .thenComparingDouble(slot -> (double) slot.uses / slot.size));
    for (Slot slot : onHeap) {
      if (bytes <= limit) {
        return;
      }
      spill(slot);
    }
  }

  private void spill(Slot slot) {
    rules.counts.slotsSpilled[slot.side].add(1);
    write(slot);
    bytes -= slot.size;
    slot.filter = slot.rows.filter();
    slot.count = slot.rows.count();
    slot.rows = null;
    bytes += filterBytes(slot);
  }

  private boolean isExpiring(Slot slot) {
    return rules.emitsExpired(slot.side) && rules.firstExpiry(slot) <= evictedAt;
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
