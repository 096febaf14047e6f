package streamjoin;

import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.util.LongAccumulator;

/** Counts of rows by side. Executors add to them, the driver reads them. */
public final class RowCounts implements Serializable {
  private static final String[] SIDES = {"left", "right"};

  /** As the lists of the state. */
  private static final String[] LISTS = {"left", "right", "left_ids", "right_ids"};

  /** A heartbeat follows every 2 seconds. Some may be late. */
  private static final long SILENCE_MS = 10_000;

  final LongAccumulator[] late;

  /** Rows that were dropped as duplicates. */
  final LongAccumulator[] duplicates;

  /** Of the lists of the state, as all that follow. */
  final LongAccumulator[] stored;

  final LongAccumulator[] removed;

  /** Rows on the heap at the end of each task. */
  final LongAccumulator[] onHeap;

  final LongAccumulator[] slotsLoaded;
  final LongAccumulator[] slotsSpilled;

  /** Probes of slots on the heap, and lists that probes have read from the store. */
  final LongAccumulator[] heapProbes;

  final LongAccumulator[] storeProbes;

  /** Rows of the stream that were joined with no row of the table, by reason (TableRules). */
  final LongAccumulator[] withoutVersion = new LongAccumulator[3];

  /** Records of a table whose key has come from another partition before. */
  final LongAccumulator keysMoved;

  /** Versions of a table that are not newer than a row of the stream that was joined before. */
  final LongAccumulator staleAnswers;

  final NewestTime[] newest = {new NewestTime(), new NewestTime()};

  private final transient SparkContext context;
  private final transient RunningTasks running = new RunningTasks();
  private final transient Map<String, Tally> tallies = new HashMap<>();

  public RowCounts(SparkContext context) {
    this.context = context;
    late = sums("late", SIDES);
    duplicates = sums("duplicates", SIDES);
    stored = sums("stored", LISTS);
    removed = sums("removed", LISTS);
    onHeap = sums("on_heap", LISTS);
    slotsLoaded = sums("slots_loaded", LISTS);
    slotsSpilled = sums("slots_spilled", LISTS);
    heapProbes = sums("heap_probes", LISTS);
    storeProbes = sums("store_probes", LISTS);
    for (int side = 0; side < SIDES.length; side++) {
      context.register(newest[side], name("newest", side));
      running.watch(late[side].id());
      running.watch(duplicates[side].id());
      running.watch(newest[side].id());
    }
    for (int reason = 0; reason < withoutVersion.length; reason++) {
      withoutVersion[reason] = context.longAccumulator("streamjoin.without_version." + reason);
    }
    staleAnswers = context.longAccumulator("streamjoin.stale_answers");
    keysMoved = context.longAccumulator("streamjoin.keys_moved");
    context.addSparkListener(running);
  }

  private LongAccumulator[] sums(String count, String[] names) {
    LongAccumulator[] sums = new LongAccumulator[names.length];
    for (int i = 0; i < names.length; i++) {
      sums[i] = context.longAccumulator(name(count, i));
    }
    return sums;
  }

  /** Name of an accumulator in Spark's events. `list`: of the state, or a side. */
  public static String name(String count, int list) {
    return "streamjoin." + count + "." + LISTS[list];
  }

  public void close() {
    context.removeSparkListener(running);
  }

  /** Called when an interval begins. */
  public void beginInterval() {
    running.beginInterval(SILENCE_MS);
  }

  /** Whether the executors of all running tasks have sent a heartbeat lately. */
  public boolean tasksAreAlive() {
    return running.areAlive(SILENCE_MS);
  }

  /** Late rows of the running interval, as of the last heartbeats of its tasks. */
  public long lateInInterval(int side) {
    return running.sum(late[side].id());
  }

  /** Duplicates of the running interval, as of the last heartbeats of its tasks. */
  public long duplicatesInInterval(int side) {
    return running.sum(duplicates[side].id());
  }

  /** Counts rows by conditions. `name`: of the tally, one for each. */
  public Tally tally(String name, int conditions) {
    Tally tally = new Tally(conditions);
    context.register(tally);
    running.watch(tally.id());
    tallies.put(name, tally);
    return tally;
  }

  /** Lines of the name of a tally and its counts in the running interval. */
  public String talliesInInterval() {
    StringBuilder lines = new StringBuilder();
    tallies.forEach(
        (name, tally) -> {
          lines.append(name);
          for (int place = 0; place < tally.value().length; place++) {
            lines.append(' ').append(running.sum(tally.id(), place));
          }
          lines.append('\n');
        });
    return lines.toString();
  }

  /**
   * Newest event time in the running interval, in milliseconds since 1970. Null: no row has
   * arrived.
   */
  public Long newestInInterval(int side) {
    long micros = running.max(newest[side].id());
    return micros == NewestTime.NONE ? null : Math.floorDiv(micros, InputRow.MICROS_PER_MILLI);
  }

  public long late(int side) {
    return late[side].value();
  }

  public long duplicates(int side) {
    return duplicates[side].value();
  }

  public long stored(int side) {
    return stored[side].value();
  }

  public long removed(int side) {
    return removed[side].value();
  }

  /** As TableCounts in protocol/progress.py, over all tasks. */
  public long[] table() {
    return new long[] {
      withoutVersion[TableRules.NO_KEY].value(),
      withoutVersion[TableRules.DELETED].value(),
      withoutVersion[TableRules.BEFORE_FIRST].value(),
      keysMoved.value(),
      staleAnswers.value()
    };
  }

  /** Sums over all tasks: rows on the heap, slots loaded and spilled, probes of heap and store. */
  public long[] heap(int side) {
    return new long[] {
      onHeap[side].value(),
      slotsLoaded[side].value(),
      slotsSpilled[side].value(),
      heapProbes[side].value(),
      storeProbes[side].value()
    };
  }
}
