package streamjoin;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.function.LongPredicate;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.array.ByteArrayMethods;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/**
 * The rows of one side in one slot, in a few large arrays.
 *
 * <pre>
 *   table: hash of a key  ->  key 0        row 0     row 2
 *                             key 1        row 1                 (the rows of a key are chained)
 *   bytes of keys and rows, one after the other
 * </pre>
 *
 * <p>Rows are only appended. The garbage collector sees some arrays for each slot, not some objects
 * for each row, and frees them all when the slot expires.
 */
final class SlotRows {
  static final int NONE = -1;

  private static final int FIRST_PAGE = 1 << 9;
  private static final int LARGEST_PAGE = 1 << 18;
  private static final int FEW = 8;
  private static final byte MATCHED = 1;
  private static final byte REMOVED = 2;

  /** Not that of Spark's shuffle: the keys of a state partition have much of that hash in common. */
  private static final int SEED = 0x9747b28c;

  private final int width;

  private byte[][] pages = {new byte[FIRST_PAGE]};
  private int usedPages = 1;
  private int usedBytes;
  private long bytes = FIRST_PAGE;

  private int[] table = filled(2 * FEW);
  private int keys;
  private long[] keyAddress = new long[FEW];
  private int[] keySize = new int[FEW];
  private int[] keyHash = new int[FEW];
  private int[] firstRow = new int[FEW];
  private int[] lastRow = new int[FEW];

  private int rows;
  private int removed;
  private long[] address = new long[FEW];
  private int[] size = new int[FEW];
  private long[] eventTime = new long[FEW];
  private long[] expiresAt = new long[FEW];
  private long[] position = new long[FEW];
  private int[] next = new int[FEW];
  private int[] keyOf = new int[FEW];
  private byte[] flags = new byte[FEW];

  /** The rows before this one are in the store. */
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
    long perKey = 8 + 4 * 4;
    long perRow = 8 * 4 + 4 * 3 + 1;
    return bytes + 4L * (table.length + order.length + toMark.length) + perKey * keySize.length + perRow * size.length;
  }

  /** The first row of a key, or NONE. `hash`: that of the key. */
  int first(UnsafeRow key, int hash) {
    int found = find(key, hash);
    return found == NONE ? NONE : present(firstRow[found]);
  }

  /** The next row of the same key, or NONE. */
  int next(int row) {
    return present(next[row]);
  }

  /** The row, or the next one of the same key if it was removed. */
  private int present(int row) {
    int found = row;
    while (found != NONE && (flags[found] & REMOVED) != 0) {
      found = next[found];
    }
    return found;
  }

  long eventTime(int row) {
    return eventTime[row];
  }

  long position(int row) {
    return position[row];
  }

  boolean isMatched(int row) {
    return (flags[row] & MATCHED) != 0;
  }

  /** The columns of a row. They stay valid. */
  UnsafeRow columns(int row) {
    return at(address[row], size[row], width);
  }

  StoredRow row(int row) {
    return new StoredRow(
        eventTime[row], expiresAt[row], position[row], isMatched(row), columns(row));
  }

  /** The key of a row, with `width` columns. */
  UnsafeRow keyOf(int row, int width) {
    return key(keyOf[row], width);
  }

  void add(UnsafeRow key, int hash, StoredRow row) {
    int of = find(key, hash);
    if (rows == size.length) {
      growRows();
    }
    if (of == NONE) {
      of = addKey(key, hash);
      firstRow[of] = rows;
    } else if (firstRow[of] == NONE) {
      firstRow[of] = rows;
    } else {
      next[lastRow[of]] = rows;
    }
    lastRow[of] = rows;
    UnsafeRow columns = (UnsafeRow) row.row;
    address[rows] = append(columns);
    size[rows] = columns.getSizeInBytes();
    eventTime[rows] = row.eventTime;
    expiresAt[rows] = row.expiresAt;
    position[rows] = row.position;
    next[rows] = NONE;
    keyOf[rows] = of;
    flags[rows] = row.matched ? MATCHED : 0;
    rows++;
  }

  /** Replaces all rows of a key. */
  void replace(UnsafeRow key, int hash, List<StoredRow> replacing) {
    int of = find(key, hash);
    if (of != NONE) {
      for (int row = firstRow[of]; row != NONE; row = next[row]) {
        mark(row, REMOVED);
        removed++;
      }
      firstRow[of] = NONE;
    }
    for (StoredRow row : replacing) {
      add(key, hash, row);
    }
  }

  int keys() {
    return keys;
  }

  /** A key by its number, with `width` columns. */
  UnsafeRow key(int number, int width) {
    return at(keyAddress[number], keySize[number], width);
  }

  /** The rows of a key by its number, in a new list. */
  List<StoredRow> rowsOf(int number) {
    return rowsFrom(firstRow[number]);
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
  int remove(LongPredicate isRemoved) {
    int before = removed;
    for (int row = 0; row < rows; row++) {
      if ((flags[row] & REMOVED) == 0 && isRemoved.test(position[row])) {
        mark(row, REMOVED);
        removed++;
      }
    }
    return removed - before;
  }

  private void mark(int row, byte flag) {
    flags[row] |= flag;
    if (row < written) {
      if (marks == toMark.length) {
        toMark = Arrays.copyOf(toMark, Math.max(FEW, 2 * marks));
      }
      toMark[marks++] = row;
    }
  }

  boolean isWritten() {
    return written == rows && marks == 0;
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
    BitSet replaced = new BitSet(keys);
    for (int i = 0; i < marks; i++) {
      replaced.set(keyOf[toMark[i]]);
    }
    for (int key = replaced.nextSetBit(0); key != NONE; key = replaced.nextSetBit(key + 1)) {
      store.replace(key(key, keyWidth), rowsOf(key));
    }
    for (int row = written; row < rows; row++) {
      int key = keyOf[row];
      if ((flags[row] & REMOVED) != 0 || replaced.get(key)) {
        continue;
      }
      if (firstRow[key] == row) {
        store.replace(key(key, keyWidth), List.of(row(row))); // The store has no row of the key.
      } else {
        store.append(key(key, keyWidth), row(row));
      }
    }
  }

  private void writeRows(SlotStore store, long evictedAt) {
    int keyWidth = store.keyWidth();
    for (int row = written; row < rows; row++) {
      if ((flags[row] & REMOVED) == 0) {
        store.append(keyOf(row, keyWidth), row(row));
      }
    }
    for (int i = 0; i < marks; i++) {
      int row = toMark[i];
      if ((flags[row] & REMOVED) != 0) {
        store.markRemoved(keyOf(row, keyWidth), row(row));
      } else if (expiresAt[row] > evictedAt) {
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
    for (int row = 0; row < rows; row++) {
      if ((flags[row] & REMOVED) == 0) {
        kept.add(keyOf(row, keyWidth), keyHash[keyOf[row]], row(row));
      }
    }
    kept.setWritten();
    return kept;
  }

  /** All rows are in the store. */
  void setWritten() {
    written = rows;
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
    for (int row = 0; row < rows; row++) {
      if (expiresAt[row] > after && expiresAt[row] <= until) {
        if (found == sorted.length) {
          sorted = Arrays.copyOf(sorted, 2 * found);
        }
        sorted[found++] = (expiresAt[row] - baseMs) << 31 | row;
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
      if (expiresAt[order[middle]] <= watermark) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  boolean isRemoved(int row) {
    return (flags[row] & REMOVED) != 0;
  }

  /** The keys that may be among the rows. */
  KeyFilter filter() {
    KeyFilter filter = new KeyFilter(keys);
    for (int key = 0; key < keys; key++) {
      filter.add(keyHash[key]);
    }
    return filter;
  }

  private int find(UnsafeRow key, int hash) {
    int mask = table.length - 1;
    for (int place = hash & mask; ; place = (place + 1) & mask) {
      int found = table[place];
      if (found == NONE || (keyHash[found] == hash && isEqual(found, key))) {
        return found;
      }
    }
  }

  /** Whether the columns are equal. The slots may differ. */
  private boolean isEqual(int of, UnsafeRow key) {
    int bytes = keySize[of];
    if (bytes != key.getSizeInBytes()) {
      return false;
    }
    Object page = pages[(int) (keyAddress[of] >>> 32)];
    long offset = Platform.BYTE_ARRAY_OFFSET + (int) keyAddress[of];
    Object base = key.getBaseObject();
    long other = key.getBaseOffset();
    int bits = bitBytes(key);
    int rest = bits + Long.BYTES;
    return ByteArrayMethods.arrayEquals(page, offset, base, other, bits)
        && ByteArrayMethods.arrayEquals(page, offset + rest, base, other + rest, bytes - rest);
  }

  private int addKey(UnsafeRow key, int hash) {
    if (keys == keySize.length) {
      int more = 2 * keys;
      keyAddress = Arrays.copyOf(keyAddress, more);
      keySize = Arrays.copyOf(keySize, more);
      keyHash = Arrays.copyOf(keyHash, more);
      firstRow = Arrays.copyOf(firstRow, more);
      lastRow = Arrays.copyOf(lastRow, more);
      table = filled(2 * more);
      for (int each = 0; each < keys; each++) {
        insert(each);
      }
    }
    keyAddress[keys] = append(key);
    keySize[keys] = key.getSizeInBytes();
    keyHash[keys] = hash;
    insert(keys);
    return keys++;
  }

  private void insert(int key) {
    int mask = table.length - 1;
    int place = keyHash[key] & mask;
    while (table[place] != NONE) {
      place = (place + 1) & mask;
    }
    table[place] = key;
  }

  private void growRows() {
    int more = 2 * rows;
    address = Arrays.copyOf(address, more);
    size = Arrays.copyOf(size, more);
    eventTime = Arrays.copyOf(eventTime, more);
    expiresAt = Arrays.copyOf(expiresAt, more);
    position = Arrays.copyOf(position, more);
    next = Arrays.copyOf(next, more);
    keyOf = Arrays.copyOf(keyOf, more);
    flags = Arrays.copyOf(flags, more);
  }

  /** Copies the bytes of a row. Returns where they are: the page, and the place in it. */
  private long append(UnsafeRow row) {
    int length = row.getSizeInBytes();
    if ((long) usedBytes + length > pages[usedPages - 1].length) {
      int larger = Math.min(2 * pages[usedPages - 1].length, LARGEST_PAGE);
      if (usedPages == pages.length) {
        pages = Arrays.copyOf(pages, 2 * usedPages);
      }
      byte[] page = new byte[Math.max(larger, length)];
      pages[usedPages++] = page;
      bytes += page.length;
      usedBytes = 0;
    }
    row.writeToMemory(pages[usedPages - 1], Platform.BYTE_ARRAY_OFFSET + usedBytes);
    long at = (long) (usedPages - 1) << 32 | usedBytes;
    usedBytes += length;
    return at;
  }

  private UnsafeRow at(long address, int size, int width) {
    UnsafeRow row = new UnsafeRow(width);
    row.pointTo(pages[(int) (address >>> 32)], Platform.BYTE_ARRAY_OFFSET + (int) address, size);
    return row;
  }

  private static int[] filled(int length) {
    int[] places = new int[length];
    Arrays.fill(places, NONE);
    return places;
  }
}
