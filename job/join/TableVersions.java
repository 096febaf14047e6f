package streamjoin;

import java.util.ArrayList;
import java.util.List;
import java.util.function.BiPredicate;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * The rows of the keys of a table in state, or their versions, and the result of a row of the
 * stream with one of them.
 *
 * <p>The keys are in slots by their hashes, which fill the heap and leave it one by one (JoinState).
 */
final class TableVersions implements ResultOfExpired {
  /** Rows that a task looks at for versions that nothing needs. */
  private static final long SWEPT_ROWS = 10_000;

  private final JoinRules rules;
  private final TableRules table;
  private final JoinState state;
  private final BiPredicate<InternalRow, InternalRow> condition;

  /** No row of the stream up to this time is still to be joined, in milliseconds. */
  private long joinedUntil;

  /** `condition`: of a row of the stream and one of the table. */
  TableVersions(
      JoinRules rules, JoinState state, BiPredicate<InternalRow, InternalRow> condition) {
    this.rules = rules;
    this.table = rules.table;
    this.state = state;
    this.condition = condition;
  }

  void setJoinedUntil(long time) {
    joinedUntil = time;
  }

  /** The rows that a key has, in a new list. */
  List<StoredRow> of(UnsafeRow key, int hash) {
    return state.rows(JoinRules.RIGHT, JoinRules.slotOfKey(hash), key, hash);
  }

  /** Those of the versions that are needed, by time. */
  List<StoredRow> kept(List<StoredRow> versions) {
    return table.kept(versions, joinedUntil);
  }

  /** Replaces the rows of a key. `before`: how many it has. */
  void replace(UnsafeRow key, int hash, int before, List<StoredRow> rows) {
    state.replace(JoinRules.RIGHT, JoinRules.slotOfKey(hash), key, hash, before, rows);
  }

  /** Adds versions to those that a key has. Returns those that are needed, by time. */
  List<StoredRow> add(
      UnsafeRow key, int hash, List<StoredRow> versions, List<StoredRow> arrived) {
    List<StoredRow> all = new ArrayList<>(versions);
    all.addAll(arrived);
    List<StoredRow> kept = kept(all);
    if (kept.size() < all.size()) {
      replace(key, hash, versions.size(), kept);
      return kept;
    }
    for (StoredRow version : arrived) {
      state.add(JoinRules.RIGHT, JoinRules.slotOfKey(hash), key, hash, version);
    }
    return kept;
  }

  /** Removes versions that are not needed, of some of the keys in turn. */
  void sweep() {
    state.sweep(JoinRules.RIGHT, SWEPT_ROWS, this::kept);
  }

  /** Whether two records of a key are from two partitions, so that they have no order. */
  static boolean hasMoved(StoredRow row, StoredRow next) {
    return row.position >>> StoredRow.OFFSET_BITS != next.position >>> StoredRow.OFFSET_BITS;
  }

  void countMoved(StoredRow row, StoredRow next) {
    rules.counts.keysMoved.add(hasMoved(row, next) ? 1 : 0);
  }

  /** The row that a row of the stream joins, of those that are needed. Null: there is none. */
  StoredRow find(List<StoredRow> versions, long time) {
    if (table.isAsOf) {
      return table.at(versions, time);
    }
    return versions.isEmpty() ? null : versions.get(0);
  }

  /** As `find`; a row without a version is counted. */
  StoredRow at(List<StoredRow> versions, long time) {
    StoredRow version = find(versions, time);
    if (version == null) {
      rules.counts.withoutVersion[TableRules.reason(versions, time)].add(1);
    }
    return version;
  }

  /** Emits the result of a row of the stream. `version`: null: there is none. */
  void emit(InternalRow row, StoredRow version, List<InternalRow> output) {
    boolean isMatched = version != null && condition.test(row, version.row);
    if (isMatched && rules.emitsPairs) {
      output.add(rules.pair(row, version.row));
    } else if (!isMatched && rules.padsUnmatched[JoinRules.LEFT]) {
      output.add(rules.unmatched(JoinRules.LEFT, row));
    }
  }

  @Override
  public void emit(UnsafeRow key, int hash, StoredRow left, List<InternalRow> output) {
    List<StoredRow> versions = of(key, hash);
    emit(left.row, at(table.isAsOf ? kept(versions) : versions, left.eventTime), output);
  }
}
