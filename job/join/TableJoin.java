package streamjoin;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
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
 *                          if it waits and finds none: stored until one arrives or it expires
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
public final class TableJoin extends EvictingJoin {
  private transient TableVersions table;

  /** Newest event time of a row of the stream that was joined before this task. */
  private transient long answeredBefore;

  public TableJoin(JoinRules rules) {
    super(rules);
  }

  @Override
  void taskBegins() {
    super.taskBegins();
    table = new TableVersions(rules, state, this::matches);
    delivered = null;
    answeredBefore = state.newestJoined;
  }

  @Override
  void taskEnds() {
    if (eviction != null) {
      evictionBegins(eviction.evictedUntil());
    }
    if (rules.table.isAsOf && delivered != null) {
      table.sweep();
    }
  }

  @Override
  public Iterator<InternalRow> handleInputRows(
      InternalRow key, Iterator<InternalRow> rows, TimerValues times) {
    if (rules.table.storesStream()) {
      rowsArrive(key, times);
    } else if (delivered == null) { // The writer opens the slot after the task has begun.
      delivered = DeliveredRows.ofTask(rules.inputs);
      if (rules.table.isAsOf) {
        lateWatermark = rules.realTime ? times.getCurrentWatermarkInMs() : LateWatermark.ofBatch();
        table.setJoinedUntil(lateWatermark);
      }
    }
    return new KeyJoin(key, rows);
  }

  @Override
  ResultOfExpired results() {
    return table;
  }

  @Override
  void evictionBegins(long previous) {
    table.setJoinedUntil(rules.table.decidedUntil(previous));
  }

  /** A row of the stream, which is joined once all records of the table have been read. */
  private record Unjoined(StoredRow row, boolean isMatchable) {}

  /** Joins the rows of one key that have arrived: all rows of a batch, or one row in real time. */
  private final class KeyJoin extends Buffered {
    private final UnsafeRow key;
    private final int hash;
    private final Iterator<InternalRow> rows;
    private final List<Unjoined> unjoined = new ArrayList<>(1);
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
        if (rules.table.storesStream() && !arrived.isEmpty()) {
          joinWaiting(output);
        }
      }
      if (joined == unjoined.size()) {
        return false;
      }
      join(unjoined.get(joined++), output);
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
      } else if (rules.table.isAsOf && input.isLate(lateWatermark)) {
        rules.counts.late[side].add(1);
        if (input.hasDeadLetter()) {
          output.add(rules.deadLetterOfLateRow(input.deadLetter(), lateWatermark));
        }
      } else if (!delivered.wasUnmatched(side, input.position())) {
        unjoined.add(new Unjoined(input.toStore().copy(), input.isMatchable()));
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

    private void join(Unjoined unjoined, List<InternalRow> output) {
      StoredRow row = unjoined.row();
      StoredRow version = null;
      if (unjoined.isMatchable()) {
        version = table.find(versions, row.eventTime);
        if (version == null && waits(row)) {
          state.add(LEFT, rules.slot(LEFT, row.eventTime, hash), key, hash, row);
          return;
        }
        state.newestJoined = Math.max(state.newestJoined, row.eventTime);
        version = table.at(versions, row.eventTime);
      }
      table.emit(row.row, version, output);
    }

    private boolean waits(StoredRow row) {
      return rules.table.storesStream() && row.expiresAt > eviction.watermark();
    }

    /** Joins the rows of the key in state that have waited for what has arrived. */
    private void joinWaiting(List<InternalRow> output) {
      for (Slot slot : state.slots(LEFT)) {
        SlotRows rows = state.rows(slot);
        if (rows == null) {
          for (StoredRow row : state.read(slot, key, hash)) {
            if (!row.matched && isJoined(row, output)) {
              state.markMatched(slot, key, row);
            }
          }
          continue;
        }
        for (int n = rows.first(key, hash); n != SlotRows.NONE; n = rows.next(n)) {
          if (!rows.isMatched(n) && isJoined(rows.row(n), output)) {
            rows.setMatched(n);
          }
        }
      }
    }

    private boolean isJoined(StoredRow row, List<InternalRow> output) {
      StoredRow version = table.find(versions, row.eventTime);
      if (version != null) {
        state.newestJoined = Math.max(state.newestJoined, row.eventTime);
        table.emit(row.row, version, output);
      }
      return version != null;
    }
  }
}
