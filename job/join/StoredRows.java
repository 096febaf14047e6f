package streamjoin;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statevariables.ListStateImpl;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.streaming.ListState;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;

/**
 * The rows of one side in state: a list for each key and slot, to which entries are only appended.
 *
 * <p>An entry is a row, or a mark that the row at its position has matched. The lists have the
 * format of Spark's ListState, so that Spark's state reader reads them. ListState counts the
 * entries of a list, which takes a lookup for each row. This class does not count them.
 */
final class StoredRows {
  private static final int EVENT_TIME = 0;
  private static final int EXPIRES_AT = 1;
  private static final int POSITION = 2;
  private static final int MATCHED = 3;
  private static final int ROW = 4;

  private final StateStore store;
  private final String name;
  private final int rowWidth;
  private final UnsafeProjection entryProjection;

  StoredRows(ListState<InternalRow> list, String name, StructType rowSchema) {
    store = ((ListStateImpl<InternalRow>) list).stateStore();
    this.name = name;
    rowWidth = rowSchema.length();
    entryProjection = UnsafeProjection.create(entrySchema(rowSchema));
  }

  static StructType entrySchema(StructType rowSchema) {
    return new StructType()
        .add("event_time", DataTypes.LongType)
        .add("expires_at", DataTypes.LongType)
        .add("position", DataTypes.LongType)
        .add("matched", DataTypes.BooleanType)
        .add("row", rowSchema);
  }

  StateStore store() {
    return store;
  }

  List<StoredRow> read(UnsafeRow key) {
    List<StoredRow> rows = new ArrayList<>();
    Set<Long> matched = new HashSet<>();
    Iterator<UnsafeRow> entries = store.valuesIterator(key, name);
    while (entries.hasNext()) {
      UnsafeRow entry = entries.next();
      if (entry.isNullAt(ROW)) {
        matched.add(entry.getLong(POSITION));
      } else {
        rows.add(row(entry));
      }
    }
    if (!matched.isEmpty()) {
      for (StoredRow row : rows) {
        row.matched |= matched.contains(row.position);
      }
    }
    return rows;
  }

  /** The store decodes each entry into a new array. */
  private StoredRow row(UnsafeRow entry) {
    return new StoredRow(
        entry.getLong(EVENT_TIME),
        entry.getLong(EXPIRES_AT),
        entry.getLong(POSITION),
        entry.getBoolean(MATCHED),
        entry.getStruct(ROW, rowWidth));
  }

  void append(UnsafeRow key, StoredRow row) {
    store.merge(key, entry(row), name);
  }

  void markMatched(UnsafeRow key, StoredRow row) {
    store.merge(key, entry(row.eventTime, row.expiresAt, row.position, true, null), name);
  }

  void remove(UnsafeRow key) {
    store.remove(key, name);
  }

  void replace(UnsafeRow key, List<StoredRow> rows) {
    UnsafeRow[] entries = new UnsafeRow[rows.size()];
    for (int i = 0; i < entries.length; i++) {
      entries[i] = entry(rows.get(i)).copy();
    }
    store.putList(key, entries, name);
  }

  private UnsafeRow entry(StoredRow row) {
    return entry(row.eventTime, row.expiresAt, row.position, row.matched, row.row);
  }

  private UnsafeRow entry(
      long eventTime, long expiresAt, long position, boolean matched, InternalRow row) {
    return entryProjection.apply(
        new GenericInternalRow(new Object[] {eventTime, expiresAt, position, matched, row}));
  }
}
