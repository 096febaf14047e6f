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
 *   a row of the stream:   joined with the row of its key, at once; it is not stored
 * </pre>
 *
 * <p>The rows of the table are in slots by the hash of their keys, which fill the heap and leave it
 * one by one (JoinState). In a micro-batch all records of the table come before the rows of the
 * stream. Of the records of a key the one with the largest offset counts, whatever their order here.
 * Records of a key in two partitions have no order, so they are counted.
 *
 * <p>Nothing depends on the watermark.
 */
public final class TableJoin extends JoinProcessor {
  private static final int SLOT_BITS = 8;

  public TableJoin(JoinRules rules) {
    super(rules);
  }

  @Override
  void taskBegins() {}

  @Override
  public Iterator<InternalRow> handleInputRows(
      InternalRow key, Iterator<InternalRow> rows, TimerValues times) {
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
    final boolean isMatchable;

    Waiting(InputRow input) {
      row = input.row().copy();
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

    /** The newest record of the table that has arrived. Null: there is none. */
    private StoredRow newest;

    private boolean deletesKey;

    /** The row that the table has. */
    private StoredRow version;

    private boolean isRead;

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
      if (!isRead) {
        isRead = true;
        version = state.row(RIGHT, slot, key, hash);
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
      if (side == LEFT) {
        waiting.add(new Waiting(input));
      } else {
        if (newest != null && hasMoved(newest, input.position())) {
          rules.counts.keysMoved.add(1);
        }
        if (newest == null || newest.position < input.position()) {
          deletesKey = !input.isMatchable();
          newest = input.toStore().copy();
        }
      }
    }

    /** Changes the table. */
    private void change() {
      if (newest == null) {
        return;
      }
      if (version != null && hasMoved(version, newest.position)) {
        rules.counts.keysMoved.add(1);
      } else if (version != null && version.position >= newest.position) {
        return;
      }
      StoredRow row = deletesKey ? null : newest;
      if (version != null || row != null) {
        state.replace(RIGHT, slot, key, hash, version, row);
      }
      version = row;
    }

    /** Whether a row and the record at a position are from two partitions. */
    private boolean hasMoved(StoredRow row, long position) {
      return row.position >>> StoredRow.OFFSET_BITS != position >>> StoredRow.OFFSET_BITS;
    }

    private void join(Waiting waiting, List<InternalRow> output) {
      if (waiting.isMatchable && version == null) {
        rules.counts.withoutVersion.add(1);
      }
      boolean isMatched =
          waiting.isMatchable && version != null && matches(waiting.row, version.row);
      if (isMatched && rules.emitsPairs) {
        output.add(rules.pair(waiting.row, version.row));
      } else if (!isMatched && rules.padsUnmatched[LEFT]) {
        output.add(rules.unmatched(LEFT, waiting.row));
      }
    }
  }
}
