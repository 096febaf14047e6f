package streamjoin;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.TimerValues;
import scala.collection.Iterator;

/**
 * The join of a stream, the left side, with a table, the right side.
 *
 * <pre>
 *   a record of the table: replaces the row of its key, or removes it
 *                          as-of: becomes a version of its key, from its event time on
 *   a row of the stream:   joined with the row of its key, at once; it is not stored
 *                          as-of: with the version that is valid at its event time
 * </pre>
 *
 * <p>The rows of the table are in slots by the hash of their keys, which fill the heap and leave it
 * one by one (JoinState). In a micro-batch all records of the table come before the rows of the
 * stream. Of the records of a key the one with the largest offset counts, whatever their order here.
 * Records of a key in two partitions have no order, so they are counted.
 *
 * <p>The latest row depends on no watermark. In an as-of join rows of the stream behind its watermark
 * are late, and versions that no later row can join leave the state (TableRules): those of a key when
 * it is written, and those of other keys in turn at the end of each task.
 *
 * <p>A run that repeats an interrupted interval may find a newer row of the table, so a row of the
 * stream whose result was delivered is not joined again.
 */
public final class TableJoin extends JoinProcessor {
  private static final int SLOT_BITS = 8;

  /** Rows that a task looks at for versions that nothing needs. */
  private static final long SWEPT_ROWS = 10_000;

  /** Null: no row has arrived. */
  private transient DeliveredRows delivered;

  private transient long watermark;

  /** Newest event time of a row of the stream that was joined before this task. */
  private transient long answeredBefore;

  public TableJoin(JoinRules rules) {
    super(rules);
  }

  @Override
  void taskBegins() {
    delivered = null;
    answeredBefore = state.newestJoined;
  }

  @Override
  void taskEnds() {
    if (rules.table.isAsOf && delivered != null) {
      state.sweep(RIGHT, SWEPT_ROWS, versions -> rules.table.kept(versions, watermark));
    }
  }

  @Override
  public Iterator<InternalRow> handleInputRows(
      InternalRow key, Iterator<InternalRow> rows, TimerValues times) {
    if (delivered == null) { // The writer opens the slot after the task has begun.
      delivered = DeliveredRows.ofTask(rules.firstSide);
      if (rules.table.isAsOf) {
        watermark = rules.realTime ? times.getCurrentWatermarkInMs() : LateWatermark.ofBatch();
      }
    }
    return new KeyJoin(key, rows);
  }

  @Override
  public Iterator<InternalRow> handleExpiredTimer(
      InternalRow key, TimerValues times, ExpiredTimerInfo timer) {
    throw new IllegalStateException("the join with a table has no timers");
  }

  /** A row of the stream, which waits until all records of the table have been read. */
  private static final class Waiting {
    final InternalRow row;
    final long eventTime;
    final boolean isMatchable;

    Waiting(InputRow input) {
      row = input.row().copy();
      eventTime = input.eventTime();
      isMatchable = input.isMatchable();
    }
  }

  /** Joins the rows of one key that have arrived: all rows of a batch, or one row in real time. */
  private final class KeyJoin extends Buffered {
    private final UnsafeRow key;
    private final int hash;
    private final long slot;
    private final Iterator<InternalRow> rows;
    private final List<Waiting> waiting = new ArrayList<>(1);
    private int joined;

    /** The records of the table that have arrived; if it is not as-of, only the newest one. */
    private final List<StoredRow> arrived = new ArrayList<>(1);

    /** The rows that the table has. */
    private List<StoredRow> versions;

    KeyJoin(InternalRow key, Iterator<InternalRow> rows) {
      this.key = stateKey(key);
      this.rows = rows;
      hash = SlotRows.hash(this.key);
      slot = hash >>> Integer.SIZE - SLOT_BITS;
    }

    @Override
    boolean fill(List<InternalRow> output) {
      if (rows.hasNext()) {
        accept(new InputRow(rules, rows.next()), output);
        return true;
      }
      if (versions == null) {
        versions = state.rows(RIGHT, slot, key, hash);
        change();
      }
      if (joined == waiting.size()) {
        return false;
      }
      join(waiting.get(joined++), output);
      return true;
    }

    private void accept(InputRow input, List<InternalRow> output) {
      if (!input.isOfASide()) {
        output.add(rules.deadLetter(input.deadLetter()));
        return;
      }
      int side = input.side();
      rules.counts.newest[side].add(input.eventTime());
      if (side == RIGHT) {
        StoredRow record = input.toVersion();
        if (!arrived.isEmpty()) {
          countMoved(arrived.get(arrived.size() - 1), record);
        }
        if (rules.table.isAsOf || arrived.isEmpty()) {
          arrived.add(record);
        } else if (arrived.get(0).position < record.position) {
          arrived.set(0, record);
        }
      } else if (rules.table.isAsOf && input.isLate(watermark)) {
        rules.counts.late[side].add(1);
        if (input.hasDeadLetter()) {
          output.add(rules.deadLetterOfLateRow(input.deadLetter(), watermark));
        }
      } else if (!delivered.wasUnmatched(side, input.position())) {
        waiting.add(new Waiting(input));
      }
    }

    /** Changes the table. */
    private void change() {
      if (!arrived.isEmpty() && !versions.isEmpty()) {
        countMoved(versions.get(0), arrived.get(0));
      }
      if (rules.table.isAsOf) {
        changeVersions();
      } else if (!arrived.isEmpty()) {
        replace(arrived.get(0));
      }
    }

    /** Makes a record the row of its key, or removes that. */
    private void replace(StoredRow record) {
      StoredRow row = versions.isEmpty() ? null : versions.get(0);
      if (row != null && !hasMoved(row, record) && row.position >= record.position) {
        return;
      }
      List<StoredRow> rows = record.matched ? List.of() : List.of(record);
      state.replace(RIGHT, slot, key, hash, versions.size(), rows);
      versions = rows;
    }

    private void changeVersions() {
      int before = versions.size();
      versions = rules.table.kept(versions, watermark);
      if (arrived.isEmpty()) {
        return;
      }
      long answered = rules.realTime ? state.newestJoined : answeredBefore;
      for (StoredRow version : arrived) {
        rules.counts.staleAnswers.add(version.eventTime <= answered ? 1 : 0);
      }
      versions.addAll(arrived);
      int all = before + arrived.size();
      versions = rules.table.kept(versions, watermark);
      if (versions.size() < all) {
        state.replace(RIGHT, slot, key, hash, before, versions);
        return;
      }
      for (StoredRow version : arrived) {
        state.add(RIGHT, slot, key, hash, version);
      }
    }

    private void countMoved(StoredRow row, StoredRow next) {
      rules.counts.keysMoved.add(hasMoved(row, next) ? 1 : 0);
    }

    /** Whether two rows are from two partitions. */
    private boolean hasMoved(StoredRow row, StoredRow next) {
      return row.position >>> StoredRow.OFFSET_BITS != next.position >>> StoredRow.OFFSET_BITS;
    }

    private void join(Waiting waiting, List<InternalRow> output) {
      StoredRow version = waiting.isMatchable ? version(waiting.eventTime) : null;
      boolean isMatched = version != null && matches(waiting.row, version.row);
      if (isMatched && rules.emitsPairs) {
        output.add(rules.pair(waiting.row, version.row));
      } else if (!isMatched && rules.padsUnmatched[LEFT]) {
        output.add(rules.unmatched(LEFT, waiting.row));
      }
    }

    /** The version that a row of the stream joins. Null: there is none. */
    private StoredRow version(long time) {
      state.newestJoined = Math.max(state.newestJoined, time);
      StoredRow version = versions.isEmpty() ? null : versions.get(0);
      if (rules.table.isAsOf) {
        version = rules.table.at(versions, time);
      }
      if (version == null) {
        rules.counts.withoutVersion[TableRules.reason(versions, time)].add(1);
      }
      return version;
    }
  }
}
