package streamjoin;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.RangeKeyScanStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.RangeScanBoundaryUtils;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.Iterator;

/**
 * The rows of one side in the state store: a list for each slot and key, sorted by slot.
 *
 * <p>An entry of a list is a row, or a mark that the row at its position has matched, or, if the
 * mark has not matched, that the row was removed. The lists
 * have the format of Spark's ListState, so that Spark's state reader reads them. Unlike ListState,
 * the keys are sorted: a slot is read and removed with one range.
 */
final class SlotStore {
  private static final int EVENT_TIME = 0;
  private static final int EXPIRES_AT = 1;
  private static final int POSITION = 2;
  private static final int MATCHED = 3;
  private static final int ROW = 4;

  private final StateStore store;
  private final String name;
  private final int keyWidth;
  private final int rowWidth;

  /** Whether the rows are those of a table: what a key has is replaced as a whole. */
  private final boolean isTable;

  private final UnsafeProjection entryProjection;

  /** The smallest key. Only its slot is changed. */
  private final UnsafeRow boundary;

  SlotStore(
      StateStore store,
      String name,
      StructType keySchema,
      StructType rowSchema,
      boolean isTable) {
    this.store = store;
    this.name = name;
    keyWidth = keySchema.length();
    rowWidth = rowSchema.length();
    this.isTable = isTable;
    StructType entrySchema = entrySchema(rowSchema);
    entryProjection = UnsafeProjection.create(entrySchema);
    boundary = RangeScanBoundaryUtils.defaultUnsafeRow(keySchema).copy();
    store.createColFamilyIfAbsent(
        name, keySchema, entrySchema, keyEncoder(keySchema), true, false);
  }

  static StructType entrySchema(StructType rowSchema) {
    return new StructType()
        .add("event_time", DataTypes.LongType)
        .add("expires_at", DataTypes.LongType)
        .add("position", DataTypes.LongType)
        .add("matched", DataTypes.BooleanType)
        .add("row", rowSchema);
  }

  /** Sorts by the first column of a key, the slot. */
  static KeyStateEncoderSpec keyEncoder(StructType keySchema) {
    return new RangeKeyScanStateEncoderSpec(keySchema, InternalRows.seq(List.<Object>of(0)));
  }

  int keyWidth() {
    return keyWidth;
  }

  /** The slots that have entries. */
  List<Long> slots() {
    List<Long> found = new ArrayList<>();
    UnsafeRow start = from(Long.MIN_VALUE + 1);
    while (true) {
      StateStoreIterator<UnsafeRowPair> entries =
          store.rangeScanWithMultiValues(Option.apply(start), Option.empty(), name);
      try {
        if (!entries.hasNext()) {
          return found;
        }
        long slot = entries.next().key().getLong(0);
        found.add(slot);
        start = from(slot + 1);
      } finally {
        entries.close();
      }
    }
  }

  /**
   * Calls `use` with the key and the rows of each list of a slot, until it returns false. `after`:
   * of the lists after this key; null: of all lists. Returns the last key that was read; null: all
   * lists were read.
   */
  UnsafeRow readLists(long slot, UnsafeRow after, ListReader use) {
    UnsafeRow start = after == null ? from(slot) : after;
    StateStoreIterator<UnsafeRowPair> entries =
        store.rangeScanWithMultiValues(Option.apply(start), Option.apply(from(slot + 1)), name);
    try {
      UnsafeRow key = null;
      Rows rows = new Rows();
      while (entries.hasNext()) {
        UnsafeRowPair pair = entries.next();
        if (key == null || !key.equals(pair.key())) {
          if (key != null && !key.equals(after) && !use.read(key, rows.read())) {
            return key;
          }
          key = pair.key().copy();
          rows = new Rows();
        }
        rows.add(pair.value().copy());
      }
      if (key != null && !key.equals(after)) {
        use.read(key, rows.read());
      }
      return null;
    } finally {
      entries.close();
    }
  }

  interface ListReader {
    /** False: no further list is read. */
    boolean read(UnsafeRow key, List<StoredRow> rows);
  }

  /** The rows of a key, which contains the slot. */
  List<StoredRow> read(UnsafeRow key) {
    Rows rows = new Rows();
    Iterator<UnsafeRow> entries = store.valuesIterator(key, name);
    while (entries.hasNext()) {
      rows.add(entries.next());
    }
    return rows.read();
  }

  void append(UnsafeRow key, StoredRow row) {
    store.merge(key, entry(row), name);
  }

  boolean isTable() {
    return isTable;
  }

  /** Replaces all rows of a key. */
  void replace(UnsafeRow key, List<StoredRow> rows) {
    if (rows.isEmpty()) {
      store.remove(key, name);
      return;
    }
    store.put(key, entry(rows.get(0)), name);
    for (StoredRow row : rows.subList(1, rows.size())) {
      append(key, row);
    }
  }

  void markMatched(UnsafeRow key, StoredRow row) {
    store.merge(key, entry(row.eventTime, row.expiresAt, row.position, true, null), name);
  }

  void markRemoved(UnsafeRow key, StoredRow row) {
    store.merge(key, entry(row.eventTime, row.expiresAt, row.position, false, null), name);
  }

  /** Removes all lists of a slot. */
  void remove(long slot) {
    store.deleteRange(from(slot), from(slot + 1), name);
  }

  private UnsafeRow from(long slot) {
    UnsafeRow key = boundary.copy();
    key.setLong(0, slot);
    return key;
  }

  private UnsafeRow entry(StoredRow row) {
    return entry(row.eventTime, row.expiresAt, row.position, row.matched, row.row);
  }

  private UnsafeRow entry(
      long eventTime, long expiresAt, long position, boolean matched, InternalRow row) {
    return entryProjection.apply(
        new GenericInternalRow(new Object[] {eventTime, expiresAt, position, matched, row}));
  }

  /** The entries of a list. */
  private final class Rows {
    private final List<StoredRow> rows = new ArrayList<>(1);
    private Set<Long> matched = Set.of();
    private Set<Long> removed = Set.of();

    void add(UnsafeRow entry) {
      if (!entry.isNullAt(ROW)) {
        // The store decodes each entry into a new array.
        rows.add(
            new StoredRow(
                entry.getLong(EVENT_TIME),
                entry.getLong(EXPIRES_AT),
                entry.getLong(POSITION),
                entry.getBoolean(MATCHED),
                entry.getStruct(ROW, rowWidth)));
        return;
      }
      if (entry.getBoolean(MATCHED)) {
        matched = matched.isEmpty() ? new HashSet<>() : matched;
        matched.add(entry.getLong(POSITION));
      } else {
        removed = removed.isEmpty() ? new HashSet<>() : removed;
        removed.add(entry.getLong(POSITION));
      }
    }

    List<StoredRow> read() {
      if (!removed.isEmpty()) {
        rows.removeIf(row -> removed.contains(row.position));
      }
      for (StoredRow row : rows) {
        row.matched |= matched.contains(row.position);
      }
      return rows;
    }
  }
}
