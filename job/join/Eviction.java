package streamjoin;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Queue;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/** Emits the unmatched rows of a partition that have expired at a watermark, and removes lists. */
final class Eviction {
  private static final int READ_AT_ONCE = 1000;

  private final JoinRules rules;
  private final StoredRows[] stored;
  private final ExpiryIndex index;
  private final long watermark;

  /** Watermark of the previous eviction. */
  private final long previous;

  /** The last entry that has been read. */
  private ExpiryIndex.Entry last;

  private boolean isAllRead;
  private final Queue<ExpiryIndex.Entry> expired = new ArrayDeque<>();

  /**
   * Lists that have been evicted. A list may have several entries in `expired`: the first one
   * evicts it.
   */
  private final Set<UnsafeRow> evicted = new HashSet<>();

  Eviction(JoinRules rules, StoredRows[] stored, ExpiryIndex index, long previous, long watermark) {
    this.rules = rules;
    this.stored = stored;
    this.index = index;
    this.previous = previous;
    this.watermark = watermark;
    last = ExpiryIndex.last(previous);
  }

  /** Evicts up to `count` entries of the index. False: no entry is left. */
  boolean evict(int count, List<InternalRow> output) {
    for (int i = 0; i < count; i++) {
      if (expired.isEmpty() && !read()) {
        return false;
      }
      evict(expired.remove(), output);
    }
    return true;
  }

  /** Call it once no entry is left. */
  void end() {
    index.removeExpired(previous, watermark);
  }

  private boolean read() {
    if (isAllRead) {
      return false;
    }
    evicted.clear();
    List<ExpiryIndex.Entry> entries = index.expired(last, watermark, READ_AT_ONCE);
    expired.addAll(entries);
    isAllRead = entries.size() < READ_AT_ONCE;
    if (!isAllRead) {
      last = entries.get(entries.size() - 1);
    }
    return !entries.isEmpty();
  }

  private void evict(ExpiryIndex.Entry entry, List<InternalRow> output) {
    if (evicted.contains(entry.key)) {
      return;
    }
    int side = JoinRules.sideOf(entry.key.getLong(entry.key.numFields() - 1));
    List<StoredRow> rows = stored[side].read(entry.key);
    if (!rules.isIndexedByRow(side)) {
      rules.counts.removed[side].add(rows.size());
      stored[side].remove(entry.key);
      return;
    }
    List<StoredRow> rest = new ArrayList<>();
    for (StoredRow row : rows) {
      if (row.expiresAt > watermark) {
        rest.add(row);
      } else if (row.expiresAt >= entry.expiresAt) {
        evict(side, row, entry, output);
      } // Otherwise an earlier watermark has evicted it, and its list has newer rows.
    }
    if (rest.isEmpty()) {
      stored[side].remove(entry.key);
    } else if (rules.slotLength == 0) {
      stored[side].replace(entry.key, rest);
    }
  }

  private void evict(
      int side, StoredRow row, ExpiryIndex.Entry entry, List<InternalRow> output) {
    rules.counts.removed[side].add(1);
    if (rules.padsUnmatched[side] && !row.matched) {
      output.add(rules.unmatched(side, row.row));
    }
    if (row.expiresAt != entry.expiresAt) {
      index.remove(row.expiresAt, entry.key);
      evicted.add(entry.key);
    }
  }
}
