package streamjoin;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.spark.SparkEnv;

/**
 * The watermark of a run in intervals, which advances while an interval runs.
 *
 * <pre>
 *   tasks of the sources   read(): offset and newest event time of each partition
 *                            |
 *   driver, in Python      every half second: the watermark that follows (query/live_watermark.py)
 *                            |
 *   tasks of the join      watermark(): with each row
 * </pre>
 *
 * <p>With a local master all of them are in one JVM. The executors of a cluster exchange both with
 * the driver, over Spark's RPC.
 */
public final class LiveWatermark {
  /** Before any watermark; also the event time of a record that has none. */
  public static final long NONE = Long.MIN_VALUE;

  private static final String ENDPOINT = "streamjoin-watermark";
  private static final String ENDED = "ended";
  private static final long EXCHANGE_MS = 100;

  private static final AtomicInteger LAST_RUN = new AtomicInteger();
  private static final Map<Integer, LiveWatermark> RUNS = new ConcurrentHashMap<>();
  private static Thread exchange;

  private final int run;
  private final List<Map<Integer, Partition>> sides =
      List.of(new ConcurrentHashMap<>(), new ConcurrentHashMap<>());
  private volatile long watermark = NONE;

  private LiveWatermark(int run) {
    this.run = run;
  }

  /** What was read of a partition. One task reads it. */
  private static final class Partition {
    /** The offset after the last record. */
    volatile long next;

    /** Microseconds since 1970. */
    volatile long newest = NONE;

    void add(long next, long newest) {
      if (newest > this.newest) {
        this.newest = newest;
      }
      if (next > this.next) {
        this.next = next;
      }
    }
  }

  /** Runs on the driver. */
  public static LiveWatermark begin() {
    DriverEndpoint.install(ENDPOINT, 1, LiveWatermark::answered);
    LiveWatermark live = new LiveWatermark(LAST_RUN.incrementAndGet());
    RUNS.put(live.run, live);
    return live;
  }

  public void end() {
    RUNS.remove(run);
  }

  public int run() {
    return run;
  }

  /**
   * Called with each record that a task has read, also with a bad one. Returns true.
   *
   * @param position in Kafka, as in job/plan/position.py
   * @param micros the event time; NONE if the record has none
   */
  public static boolean read(int run, int side, long position, long micros) {
    long offset = position & ((1L << StoredRow.OFFSET_BITS) - 1);
    of(run).partition(side, (int) (position >>> StoredRow.OFFSET_BITS)).add(offset + 1, micros);
    return true;
  }

  /**
   * The watermark of the task of this thread, in milliseconds. It follows the one that the driver
   * offers ({@link LocalShuffle}).
   */
  static long watermark(int run) {
    return LocalShuffle.watermark(of(run).watermark);
  }

  /** Runs on the driver. The watermark never goes back. */
  public synchronized void offer(long ms) {
    watermark = Math.max(watermark, ms);
  }

  /** Lines of side, partition, offset after the last record, and newest event time. */
  public String partitions() {
    StringBuilder lines = new StringBuilder();
    for (int side = 0; side < sides.size(); side++) {
      for (Map.Entry<Integer, Partition> each : sides.get(side).entrySet()) {
        Partition partition = each.getValue();
        lines.append(side).append(' ').append(each.getKey()).append(' ').append(partition.next);
        lines.append(' ').append(partition.newest).append('\n');
      }
    }
    return lines.toString();
  }

  private Partition partition(int side, int number) {
    return sides.get(side).computeIfAbsent(number, each -> new Partition());
  }

  private static LiveWatermark of(int run) {
    LiveWatermark live = RUNS.get(run);
    return live == null ? ofEndedRun(run) : live;
  }

  /** Of a run that has ended, or of one that the tasks of this executor have just begun. */
  private static LiveWatermark ofEndedRun(int run) {
    LiveWatermark live = new LiveWatermark(run);
    if (isOnDriver()) {
      return live;
    }
    LiveWatermark known = RUNS.putIfAbsent(run, live);
    startExchange();
    return known == null ? live : known;
  }

  private static boolean isOnDriver() {
    return SparkEnv.get().executorId().equals("driver");
  }

  private static synchronized void startExchange() {
    if (exchange == null) {
      exchange = new Thread(LiveWatermark::exchange, ENDPOINT);
      exchange.setDaemon(true);
      exchange.start();
    }
  }

  /** Runs on an executor, until the executor ends. */
  private static void exchange() {
    while (true) {
      try {
        Thread.sleep(EXCHANGE_MS);
        for (LiveWatermark live : RUNS.values()) {
          String answer = DriverEndpoint.ask(ENDPOINT, live.run + "\n" + live.partitions());
          if (answer.equals(ENDED)) {
            live.end();
          } else {
            live.offer(Long.parseLong(answer));
          }
        }
      } catch (InterruptedException e) {
        return;
      } catch (RuntimeException e) {
        // The driver does not answer. Without it, the tasks end soon.
      }
    }
  }

  private static String answered(String question) {
    List<String> lines = question.lines().collect(Collectors.toList());
    LiveWatermark live = RUNS.get(Integer.parseInt(lines.get(0)));
    if (live == null) {
      return ENDED;
    }
    for (String line : lines.subList(1, lines.size())) {
      String[] parts = line.split(" ");
      live.partition(Integer.parseInt(parts[0]), Integer.parseInt(parts[1]))
          .add(Long.parseLong(parts[2]), Long.parseLong(parts[3]));
    }
    return Long.toString(live.watermark);
  }
}
