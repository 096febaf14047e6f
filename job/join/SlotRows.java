package streamjoin;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.LongPredicate;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.array.ByteArrayMethods;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/**
 * The rows of one side in one slot.
 *
 * <pre>
 *   table: hash of a key  ->  key:  hash, first row, last row, columns
 *                             row:  key, next row, times, position, columns
 *   pages: the keys and the rows as they were added
 * </pre>
 *
 * <p>Rows are only appended. The garbage collector sees some arrays for each slot, not some objects
 * for each row, and frees them all when the slot expires. A probe reads few lines of memory, because
 * all of a key, and all of a row, is in one place.
 */
final class SlotRows {
  static final int NONE = Pages.NONE;

  private static final int FEW = 8;
  private static final byte MATCHED = 1;
  private static final byte REMOVED = 2;

  /** Of a row; of a key its complement, which is negative. */
  private static final int SIZE = 0;

  private static final int KEY_HASH = 4;
  private static final int KEY_FIRST = 8;
  private static final int KEY_LAST = 12;
  private static final int KEY_COLUMNS = 16;

  private static final int ROW_KEY = 4;
  private static final int ROW_NEXT = 8;
  private static final int ROW_FLAGS = 12;
  private static final int ROW_POSITION = 16;
  private static final int ROW_EVENT_TIME = 24;
  private static final int ROW_EXPIRES_AT = 32;
  private static final int ROW_COLUMNS = 40;

  /** Not that of Spark's shuffle: the keys of a state partition have much of that hash in common. */
  private static final int SEED = 0x9747b28c;

  private final int width;

  private final Pages pages = new Pages();
  private int[] table = filled(2 * FEW);
  private int keys;
  private int rows;
  private int removed;

  /** The rows before this place are in the store. */
  private int written;

  /** Rows in the store that have matched or were removed, without a mark there. */
  private int[] toMark = new int[0];

  private int marks;

  /** The rows by expiry, once no row was added between two calls of {@link #expiring}. */
  private int[] order = new int[0];

  private int rowsBefore = NONE;

  /** `width`: number of columns of a row. */
  SlotRows(int width) {
    this.width = width;
  }

  /** A hash of the columns of a key, without the slot. */
  static int hash(UnsafeRow key) {
    Object base = key.getBaseObject();
    long offset = key.getBaseOffset();
    int bits = bitBytes(key);
    int hash = Murmur3_x86_32.hashUnsafeWords(base, offset, bits, SEED);
    int rest = bits + Long.BYTES;
    return Murmur3_x86_32.hashUnsafeWords(base, offset + rest, key.getSizeInBytes() - rest, hash);
  }

  /** The null bits, which are before the columns. The first column is the slot. */
  private static int bitBytes(UnsafeRow key) {
    return UnsafeRow.calculateBitSetWidthInBytes(key.numFields());
  }

  int count() {
    return rows - removed;
  }

  long bytes() {
    return pages.bytes() + 4L * (table.length + order.length + toMark.length);
  }

  /** The first row of a key, or NONE. `hash`: that of the key. */
  int first(UnsafeRow key, int hash) {
    int found = find(key, hash);
    return found == NONE ? NONE : present(getInt(found, KEY_FIRST));
  }

  /** The next row of the same key, or NONE. */
  int next(int row) {
    return present(getInt(row, ROW_NEXT));
  }

  /** The row, or the next one of the same key if it was removed. */
  private int present(int row) {
    int found = row;
    while (found != NONE && isRemoved(found)) {
      found = getInt(found, ROW_NEXT);
    }
    return found;
  }

  long eventTime(int row) {
    return pages.getLong(row, ROW_EVENT_TIME);
  }

  long position(int row) {
    return pages.getLong(row, ROW_POSITION);
  }

  boolean isMatched(int row) {
    return (getInt(row, ROW_FLAGS) & MATCHED) != 0;
  }

  boolean isRemoved(int row) {
    return (getInt(row, ROW_FLAGS) & REMOVED) != 0;
  }

  /** The columns of a row. They stay valid. */
  UnsafeRow columns(int row) {
    return pages.columns(row, ROW_COLUMNS, getInt(row, SIZE), width);
  }

  StoredRow row(int row) {
    return new StoredRow(
        eventTime(row), expiresAt(row), position(row), isMatched(row), columns(row));
  }

  private long expiresAt(int row) {
    return pages.getLong(row, ROW_EXPIRES_AT);
  }

  /** The key of a row, with `width` columns. */
  UnsafeRow keyOf(int row, int width) {
    return key(getInt(row, ROW_KEY), width);
  }

  private UnsafeRow key(int key, int width) {
    return pages.columns(key, KEY_COLUMNS, ~getInt(key, SIZE), width);
  }

  void add(UnsafeRow key, int hash, StoredRow added) {
    int of = find(key, hash);
    if (of == NONE) {
      of = addKey(key, hash);
    }
    int row = pages.append(ROW_COLUMNS, (UnsafeRow) added.row);
    putInt(row, SIZE, ((UnsafeRow) added.row).getSizeInBytes());
    putInt(row, ROW_KEY, of);
    putInt(row, ROW_NEXT, NONE);
    putInt(row, ROW_FLAGS, added.matched ? MATCHED : 0);
    pages.putLong(row, ROW_POSITION, added.position);
    pages.putLong(row, ROW_EVENT_TIME, added.eventTime);
    pages.putLong(row, ROW_EXPIRES_AT, added.expiresAt);
    if (getInt(of, KEY_FIRST) == NONE) {
      putInt(of, KEY_FIRST, row);
    } else {
      putInt(getInt(of, KEY_LAST), ROW_NEXT, row);
    }
    putInt(of, KEY_LAST, row);
    rows++;
  }

  /** Replaces all rows of a key. */
  void replace(UnsafeRow key, int hash, List<StoredRow> replacing) {
    int of = find(key, hash);
    if (of != NONE) {
      for (int row = getInt(of, KEY_FIRST); row != NONE; row = getInt(row, ROW_NEXT)) {
        mark(row, REMOVED);
        removed++;
      }
      putInt(of, KEY_FIRST, NONE);
    }
    for (StoredRow row : replacing) {
      add(key, hash, row);
    }
  }

  /** Calls `use` with each key, with `width` columns, and its rows. */
  void readLists(int width, SlotStore.ListReader use) {
    for (int key : table) {
      if (key != NONE && !use.read(key(key, width), rowsFrom(getInt(key, KEY_FIRST)))) {
        return;
      }
    }
  }

  /** The rows of a key, in a new list. */
  List<StoredRow> rowsOf(UnsafeRow key, int hash) {
    return rowsFrom(first(key, hash));
  }

  private List<StoredRow> rowsFrom(int first) {
    List<StoredRow> found = new ArrayList<>(1);
    for (int row = first; row != NONE; row = next(row)) {
      found.add(row(row));
    }
    return found;
  }

  /** Records that a row has matched. */
  void setMatched(int row) {
    mark(row, MATCHED);
  }

  /** Removes the rows at these positions. Returns how many. */
  int remove(LongPredicate isDelivered) {
    int before = removed;
    for (int row = rowFrom(0); row != NONE; row = rowAfter(row)) {
      if (!isRemoved(row) && isDelivered.test(position(row))) {
        mark(row, REMOVED);
        removed++;
      }
    }
    return removed - before;
  }

  private void mark(int row, byte flag) {
    putInt(row, ROW_FLAGS, getInt(row, ROW_FLAGS) | flag);
    if (row < written) {
      if (marks == toMark.length) {
        toMark = Arrays.copyOf(toMark, Math.max(FEW, 2 * marks));
      }
      toMark[marks++] = row;
    }
  }

  boolean isWritten() {
    return written == pages.end() && marks == 0;
  }

  /** Writes what the store does not have. `evictedAt`: without marks of rows that had expired. */
  void write(SlotStore store, long evictedAt) {
    if (store.isTable()) {
      writeTable(store);
    } else {
      writeRows(store, evictedAt);
    }
    setWritten();
  }

  /** Writes the rows of the keys that have changed. */
  private void writeTable(SlotStore store) {
    int keyWidth = store.keyWidth();
    int[] replaced = new int[marks];
    for (int i = 0; i < marks; i++) {
      replaced[i] = getInt(toMark[i], ROW_KEY);
    }
    Arrays.sort(replaced);
    for (int i = 0; i < marks; i++) {
      if (i == 0 || replaced[i] != replaced[i - 1]) {
        List<StoredRow> rows = rowsFrom(getInt(replaced[i], KEY_FIRST));
        store.replace(key(replaced[i], keyWidth), rows);
      }
    }
    for (int row = rowFrom(written); row != NONE; row = rowAfter(row)) {
      int key = getInt(row, ROW_KEY);
      if (isRemoved(row) || Arrays.binarySearch(replaced, key) >= 0) {
        continue;
      }
      if (getInt(key, KEY_FIRST) == row) {
        store.replace(key(key, keyWidth), List.of(row(row))); // The store has no row of the key.
      } else {
        store.append(key(key, keyWidth), row(row));
      }
    }
  }

  private void writeRows(SlotStore store, long evictedAt) {
    int keyWidth = store.keyWidth();
    for (int row = rowFrom(written); row != NONE; row = rowAfter(row)) {
      if (!isRemoved(row)) {
        store.append(keyOf(row, keyWidth), row(row));
      }
    }
    for (int i = 0; i < marks; i++) {
      int row = toMark[i];
      if (isRemoved(row)) {
        store.markRemoved(keyOf(row, keyWidth), row(row));
      } else if (expiresAt(row) > evictedAt) {
        store.markMatched(keyOf(row, keyWidth), row(row));
      }
    }
  }

  /** Whether most of the rows are removed ones. */
  boolean isSparse() {
    return removed > FEW && removed > rows / 2;
  }

  /** The same rows without those that were removed. All are written. */
  SlotRows compacted(int keyWidth) {
    SlotRows kept = new SlotRows(width);
    for (int row = rowFrom(0); row != NONE; row = rowAfter(row)) {
      if (!isRemoved(row)) {
        int hash = getInt(getInt(row, ROW_KEY), KEY_HASH);
        kept.add(keyOf(row, keyWidth), hash, row(row));
      }
    }
    kept.setWritten();
    return kept;
  }

  /** All rows are in the store. */
  void setWritten() {
    written = pages.end();
    marks = 0;
    toMark = new int[0];
  }

  /** The rows that expire after `previous` and not after `watermark`. `baseMs`: before all. */
  int[] expiring(long baseMs, long previous, long watermark) {
    if (order.length != rows && rowsBefore == rows) {
      order = byExpiry(baseMs, baseMs, Long.MAX_VALUE);
    }
    rowsBefore = rows;
    if (order.length != rows) {
      return byExpiry(baseMs, previous, watermark);
    }
    return Arrays.copyOfRange(order, firstAfter(previous), firstAfter(watermark));
  }

  private int[] byExpiry(long baseMs, long after, long until) {
    long[] sorted = new long[FEW];
    int found = 0;
    for (int row = rowFrom(0); row != NONE; row = rowAfter(row)) {
      long expiresAt = expiresAt(row);
      if (expiresAt > after && expiresAt <= until) {
        if (found == sorted.length) {
          sorted = Arrays.copyOf(sorted, 2 * found);
        }
        sorted[found++] = (expiresAt - baseMs) << 31 | row;
      }
    }
    Arrays.sort(sorted, 0, found);
    int[] places = new int[found];
    for (int i = 0; i < found; i++) {
      places[i] = (int) sorted[i] & Integer.MAX_VALUE;
    }
    return places;
  }

  /** The first place in `order` of a row that expires after `watermark`. */
  private int firstAfter(long watermark) {
    int low = 0;
    int high = order.length;
    while (low < high) {
      int middle = (low + high) >>> 1;
      if (expiresAt(order[middle]) <= watermark) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  /** The keys that may be among the rows. */
  KeyFilter filter() {
    KeyFilter filter = new KeyFilter(keys);
    for (int key : table) {
      if (key != NONE) {
        filter.add(getInt(key, KEY_HASH));
      }
    }
    return filter;
  }

  private int find(UnsafeRow key, int hash) {
    int mask = table.length - 1;
    for (int place = hash & mask; ; place = (place + 1) & mask) {
      int found = table[place];
      if (found == NONE || (getInt(found, KEY_HASH) == hash && isEqual(found, key))) {
        return found;
      }
    }
  }

  /** Whether the columns are equal. The slots may differ. */
  private boolean isEqual(int of, UnsafeRow key) {
    int size = key.getSizeInBytes();
    if (~getInt(of, SIZE) != size) {
      return false;
    }
    Object page = pages.page(of);
    long offset = Pages.offset(of) + KEY_COLUMNS;
    Object base = key.getBaseObject();
    long other = key.getBaseOffset();
    int bits = bitBytes(key);
    int rest = bits + Long.BYTES;
    return ByteArrayMethods.arrayEquals(page, offset, base, other, bits)
        && ByteArrayMethods.arrayEquals(page, offset + rest, base, other + rest, size - rest);
  }

  private int addKey(UnsafeRow columns, int hash) {
    if (2 * keys == table.length) {
      int[] before = table;
      table = filled(2 * before.length);
      for (int each : before) {
        if (each != NONE) {
          insert(each);
        }
      }
    }
    int key = pages.append(KEY_COLUMNS, columns);
    putInt(key, SIZE, ~columns.getSizeInBytes());
    putInt(key, KEY_HASH, hash);
    putInt(key, KEY_FIRST, NONE);
    putInt(key, KEY_LAST, NONE);
    insert(key);
    keys++;
    return key;
  }

  private void insert(int key) {
    int mask = table.length - 1;
    int place = getInt(key, KEY_HASH) & mask;
    while (table[place] != NONE) {
      place = (place + 1) & mask;
    }
    table[place] = key;
  }

  /** The first row at a place or after it, or NONE. */
  private int rowFrom(int place) {
    int entry = pages.entry(place);
    while (entry != NONE && getInt(entry, SIZE) < 0) {
      entry = pages.entry(Pages.after(entry, KEY_COLUMNS + ~getInt(entry, SIZE)));
    }
    return entry;
  }

  /** The row after a row, or NONE. */
  private int rowAfter(int row) {
    return rowFrom(Pages.after(row, ROW_COLUMNS + getInt(row, SIZE)));
  }

  private int getInt(int place, int field) {
    return pages.getInt(place, field);
  }

  private void putInt(int place, int field, int value) {
    pages.putInt(place, field, value);
  }

  private static int[] filled(int length) {
    int[] places = new int[length];
    Arrays.fill(places, NONE);
    return places;
  }
}
