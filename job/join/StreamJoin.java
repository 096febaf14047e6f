package streamjoin;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.streaming.TimerValues;
import scala.collection.Iterator;

/**
 * Spark's stream-stream join as a stateful processor that runs in real time and in micro-batches.
 *
 * <pre>
 *   a row of the left side                          state of one partition (JoinState)
 *        |
 *        |  1. late, or a duplicate? counted,       right side   slot n     | key: row, row | key: row
 *        |     not joined                                        slot n+1   | key: row
 *        |  2. probe the slots of the right side
 *        |     that can hold a match                left side    slot n     | key: row | key: row(matched)
 *        |  3. add it to its own slot               left ids     slot n     | key, id | key, id
 *        v
 *   pairs, unmatched rows
 * </pre>
 *
 * <p>A slot has the rows of one side whose event times are in one range. It is filled, written, read
 * and removed as a whole. A probe reads the rows of the key in each slot that can contain a match.
 * Rows of a side that never expire are in slots by the hash of the key.
 *
 * <p>A row expires at the first watermark at which no later row can match it. An unmatched row of
 * an outer side is then emitted. A slot is removed once all of its rows have expired. In
 * micro-batches the processor evicts at the end of the batch, as StreamingSymmetricHashJoinExec
 * does. In real time the watermark advances also while an interval runs (LiveWatermark): with each
 * row that arrives the processor evicts a few rows, and the rest at the end of the interval.
 *
 * <p>Late rows are counted by side and dropped, or replaced by their dead letters. In micro-batches
 * the watermark of the previous batch decides which rows are late, as in Spark's own join. In real
 * time the watermark of the last eviction decides.
 *
 * <p>A run that repeats an interrupted interval begins with the watermark of its begin, and repeats
 * what the interval has delivered (DeliveredRows): a row that was late is late, and a row that was
 * unmatched has expired.
 *
 * <p>A join that picks (Pick) emits no pairs when rows arrive: the result of a left row is chosen
 * when it expires, because its window has passed then. In the same way a row waits for its version of
 * a table, the right side, if the join is final (TableVersions). A version that is read after rows
 * of its time may have had their results is valid from then on.
 *
 * <p>Unlike Spark 4.3.0's own operator, a left semi join does not miss a match in the batch that
 * evicts one of the two rows.
 */
public final class StreamJoin extends EvictingJoin {
  /** Rows that are evicted with each row that arrives in real time. */
  private static final int EVICTED_WITH_EACH_ROW = 4;

  /** By side. Null: the side drops no duplicates. */
  private transient Duplicates[] duplicates;

  private transient ResultOfExpired results;
  private transient TableVersions versions;

  public StreamJoin(JoinRules rules) {
    super(rules);
  }

  @Override
  void taskBegins() {
    if (rules.liveRun != 0) {
      TickingShuffleManager.register(InputRow.tick(rules));
    }
    super.taskBegins();
    duplicates = new Duplicates[rules.ids.length];
    for (int side = LEFT; side <= RIGHT; side++) {
      duplicates[side] = rules.ids[side] == null ? null : new Duplicates(rules, state, side);
    }
    if (rules.table == null) {
      results = new Picking(rules, state, this::matches);
    } else {
      results = versions = new TableVersions(rules, state, this::matches);
    }
  }

  @Override
  public Iterator<InternalRow> handleInputRows(
      InternalRow key, Iterator<InternalRow> rows, TimerValues times) {
    rowsArrive(key, times);
    return new KeyJoin(key, rows, eviction.watermark());
  }

  @Override
  void taskEnds() {
    if (versions != null && eviction != null) {
      versions.setJoinedUntil(rules.table.decidedUntil(eviction.evictedUntil()));
      versions.sweep();
    }
  }

  @Override
  ResultOfExpired results() {
    return results;
  }

  @Override
  void evictionBegins(long previous) {
    if (versions != null) {
      versions.setJoinedUntil(rules.table.decidedUntil(previous));
    }
  }

  private boolean isInWindow(long leftTime, long rightTime) {
    long distance = rightTime - leftTime;
    return distance >= rules.lower && distance <= rules.upper;
  }

  /** Joins the rows of one key that have arrived: all rows of a batch, or one row in real time. */
  private final class KeyJoin extends Buffered {
    /** With the slot of the last row that was added or found in the store. */
    private final UnsafeRow key;

    private final int hash;
    private final Iterator<InternalRow> rows;
    private final long watermark;

    /** Lists that have been read from the store, by side and slot. */
    private final List<Map<Long, List<StoredRow>>> lists = List.of(new HashMap<>(), new HashMap<>());

    /** Rows that had expired when they arrived. Only rows of the same batch can match them. */
    private final List<List<StoredRow>> expired = List.of(new ArrayList<>(), new ArrayList<>());

    private boolean isTick;
    private boolean ended;

    KeyJoin(InternalRow key, Iterator<InternalRow> rows, long watermark) {
      this.key = stateKey(key);
      this.rows = rows;
      this.watermark = watermark;
      hash = SlotRows.hash(this.key);
    }

    @Override
    boolean fill(List<InternalRow> output) {
      if (rows.hasNext()) {
        accept(new InputRow(rules, rows.next()), output);
        return true;
      }
      if (ended) {
        return false;
      }
      ended = true;
      for (int side = LEFT; side <= RIGHT; side++) {
        for (StoredRow row : expired.get(side)) {
          if (rules.waits()) {
            results.emit(key, hash, row, output);
          } else if (rules.padsUnmatched[side] && !row.matched) {
            output.add(rules.unmatched(side, row.row));
          }
        }
      }
      if (rules.realTime) {
        eviction.evict(isTick ? EVICTED_AT_ONCE : EVICTED_WITH_EACH_ROW, output);
      }
      return true;
    }

    private void accept(InputRow input, List<InternalRow> output) {
      if (input.isTick()) {
        isTick = true;
        return;
      }
      if (!input.isOfASide()) {
        output.add(rules.deadLetter(input.deadLetter()));
        return;
      }
      int side = input.side();
      rules.counts.newest[side].add(input.eventTime());
      if (versions != null && side == RIGHT) {
        addVersion(input.toVersion());
        return;
      }
      if (input.isLate(lateWatermark) || delivered.wasLate(side, input.position())) {
        rules.counts.late[side].add(1);
        if (input.hasDeadLetter()) {
          output.add(rules.deadLetterOfLateRow(input.deadLetter(), lateWatermark));
        }
        return;
      }
      if (duplicates[side] != null && duplicates[side].isDuplicate(key, input)) {
        return;
      }
      if (delivered.wasUnmatched(side, input.position())) {
        return;
      }
      if (input.isMatchable()) {
        join(side, input.toStore(), input.slotTime(), output);
      } else if (rules.padsUnmatched[side]) {
        output.add(rules.unmatched(side, input.row()));
      }
    }

    /** A late version counts for rows that have no result yet. */
    private void addVersion(StoredRow version) {
      List<StoredRow> before = versions.of(key, hash);
      if (!before.isEmpty()) {
        versions.countMoved(before.get(0), version);
      }
      long decided = rules.table.decidedUntil(lateWatermark);
      StoredRow added = version;
      if (version.eventTime <= decided * InputRow.MICROS_PER_MILLI) {
        rules.counts.late[RIGHT].add(1);
        added = TableRules.late(versions.kept(before), version, decided);
      }
      if (added != null) {
        versions.add(key, hash, before, List.of(added));
      }
    }

    private void join(int side, StoredRow row, long slotTime, List<InternalRow> output) {
      if (rules.waits()) {
        store(side, row, slotTime);
        return;
      }
      int other = 1 - side;
      boolean isEnough = rules.semi && side == LEFT;
      boolean matched = false;
      for (Slot slot : state.slotsOfMatches(other, slotTime, hash)) {
        matched |= probe(side, row, slot, output);
        if (isEnough && matched) {
          return;
        }
      }
      matched |= probe(side, row, null, expired.get(other), output);
      if (!(isEnough && matched)) {
        row.matched = matched && rules.marksMatched(side);
        store(side, row, slotTime);
      }
    }

    /** Emits the matches of `row` in a slot of the other side. */
    private boolean probe(int side, StoredRow row, Slot slot, List<InternalRow> output) {
      SlotRows others = state.rows(slot);
      if (others == null) {
        List<StoredRow> stored = list(slot);
        slot.uses += stored.isEmpty() ? 0 : 1;
        return probe(side, row, slot, stored, output);
      }
      if (!lists.get(slot.side).isEmpty()) {
        lists.get(slot.side).remove(slot.number); // It may be older than the rows on the heap.
      }
      int other = others.first(key, hash);
      if (other != SlotRows.NONE) {
        slot.uses++;
      }
      boolean matched = false;
      for (; other != SlotRows.NONE; other = others.next(other)) {
        boolean isInWindow =
            side == LEFT
                ? isInWindow(row.eventTime, others.eventTime(other))
                : isInWindow(others.eventTime(other), row.eventTime);
        if (isInWindow && !hasBeenEmitted(side, others.isMatched(other))) {
          InternalRow columns = others.columns(other);
          if (emits(side, row, columns, output)) {
            matched = true;
            if (rules.marksMatched(1 - side) && !others.isMatched(other)) {
              others.setMatched(other);
            }
            if (rules.semi && side == LEFT) {
              return true;
            }
          }
        }
      }
      return matched;
    }

    /** As above, for rows of a slot in the store; `slot`: null: for rows that are not stored. */
    private boolean probe(
        int side, StoredRow row, Slot slot, List<StoredRow> others, List<InternalRow> output) {
      boolean matched = false;
      for (StoredRow other : others) {
        boolean isInWindow =
            side == LEFT
                ? isInWindow(row.eventTime, other.eventTime)
                : isInWindow(other.eventTime, row.eventTime);
        if (isInWindow
            && !hasBeenEmitted(side, other.matched)
            && emits(side, row, other.row, output)) {
          matched = true;
          if (rules.marksMatched(1 - side) && !other.matched) {
            other.matched = true;
            if (slot != null) {
              state.markMatched(slot, key, other);
            }
          }
          if (rules.semi && side == LEFT) {
            return true;
          }
        }
      }
      return matched;
    }

    /** Whether the other row is a left row of a semi join that has been emitted. */
    private boolean hasBeenEmitted(int side, boolean isOtherMatched) {
      return rules.semi && side == RIGHT && isOtherMatched;
    }

    /** Emits the pair if the rows match. */
    private boolean emits(int side, StoredRow row, InternalRow other, List<InternalRow> output) {
      InternalRow left = side == LEFT ? row.row : other;
      InternalRow right = side == LEFT ? other : row.row;
      if (!matches(left, right)) {
        return false;
      }
      if (rules.emitsPairs) {
        output.add(rules.pair(left, right));
      }
      return true;
    }

    private List<StoredRow> list(Slot slot) {
      return lists
          .get(slot.side)
          .computeIfAbsent(slot.number, each -> state.read(slot, key, hash));
    }

    private void store(int side, StoredRow row, long slotTime) {
      // If the join picks, a left row that expires with this batch may match a right row that has
      // expired when it arrives.
      if (row.expiresAt <= watermark && !(rules.waits() && side == RIGHT)) {
        expired.get(side).add(row.copy());
        return;
      }
      long slot = rules.slot(side, slotTime, hash);
      state.add(side, slot, key, hash, row);
      List<StoredRow> list = lists.get(side).get(slot);
      if (list != null) {
        list.add(row.copy());
      }
    }
  }
}
