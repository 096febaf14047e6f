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
 * <p>In a micro-batch all records of the table come before the rows of the
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
  /** Null: no row has arrived. */
  private transient DeliveredRows delivered;

  private transient TableVersions table;

  private transient long watermark;

  /** Newest event time of a row of the stream that was joined before this task. */
  private transient long answeredBefore;

  public TableJoin(JoinRules rules) {
    super(rules);
  }

  @Override
  void taskBegins() {
    table = new TableVersions(rules, state, this::matches);
    delivered = null;
    answeredBefore = state.newestJoined;
  }

  @Override
  void taskEnds() {
    if (rules.table.isAsOf && delivered != null) {
      table.sweep();
    }
  }

  @Override
  public Iterator<InternalRow> handleInputRows(
      InternalRow key, Iterator<InternalRow> rows, TimerValues times) {
    if (delivered == null) { // The writer opens the slot after the task has begun.
      delivered = DeliveredRows.ofTask(rules.firstSide);
      if (rules.table.isAsOf) {
        watermark = rules.realTime ? times.getCurrentWatermarkInMs() : LateWatermark.ofBatch();
        table.setJoinedUntil(watermark);
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
    }

    @Override
    boolean fill(List<InternalRow> output) {
      if (rows.hasNext()) {
        accept(new InputRow(rules, rows.next()), output);
        return true;
      }
      if (versions == null) {
        versions = table.of(key, hash);
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
          table.countMoved(arrived.get(arrived.size() - 1), record);
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
        table.countMoved(versions.get(0), arrived.get(0));
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
      if (row != null && !TableVersions.hasMoved(row, record) && row.position >= record.position) {
        return;
      }
      List<StoredRow> rows = record.matched ? List.of() : List.of(record);
      table.replace(key, hash, versions.size(), rows);
      versions = rows;
    }

    private void changeVersions() {
      if (arrived.isEmpty()) {
        versions = table.kept(versions);
        return;
      }
      long answered = rules.realTime ? state.newestJoined : answeredBefore;
      for (StoredRow version : arrived) {
        rules.counts.staleAnswers.add(version.eventTime <= answered ? 1 : 0);
      }
      versions = table.add(key, hash, versions, arrived);
    }

    private void join(Waiting waiting, List<InternalRow> output) {
      StoredRow version = null;
      if (waiting.isMatchable) {
        state.newestJoined = Math.max(state.newestJoined, waiting.eventTime);
        version = table.at(versions, waiting.eventTime);
      }
      table.emit(waiting.row, version, output);
    }
  }
}
