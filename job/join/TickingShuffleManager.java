package streamjoin;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkConf;
import org.apache.spark.TaskContext;
import org.apache.spark.internal.config.ConfigEntry;
import org.apache.spark.internal.config.package$;
import org.apache.spark.network.shuffle.streaming.StreamingShuffleMessage;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.streaming.StreamingShuffleManager;
import org.apache.spark.shuffle.streaming.StreamingShuffleReader;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.util.ErrorNotifier;
import org.apache.spark.util.TaskCompletionListener;
import org.apache.spark.util.Utils;
import scala.Option;
import scala.Product2;
import scala.Tuple2;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * Spark's shuffle of real-time mode, whose readers give the join a tick while no row arrives: a task
 * of the join runs only with a row, and would evict nothing otherwise. A tick is a row of no side.
 *
 * <p>With a local master the rows pass through a queue ({@link LocalShuffle}). On a cluster Spark's
 * reader polls a queue of messages. The poll fails while the queue is empty, which leaves the reader
 * as it was.
 */
public final class TickingShuffleManager extends StreamingShuffleManager {
  /** A task of the join without rows gets a tick after this time. */
  static final long TICK_NANOS = TimeUnit.MILLISECONDS.toNanos(100);

  private static final ConfigEntry<Object> HAND_OVER_MS =
      package$.MODULE$.STREAMING_SHUFFLE_NETWORK_BUFFER_MAX_WAIT_TIME_MS();

  /** The tick of each running task, by its attempt id. */
  private static final Map<Long, InternalRow> TICKS = new ConcurrentHashMap<>();

  /** Null: on a cluster. */
  private final LocalShuffle local;

  public TickingShuffleManager(SparkConf conf) {
    long handOverMs = (Long) conf.get(HAND_OVER_MS);
    local = Utils.isLocalMaster(conf) ? new LocalShuffle(handOverMs) : null;
  }

  /** Called by a task that needs ticks, before it reads. */
  static void register(InternalRow tick) {
    TaskContext task = TaskContext.get();
    TICKS.put(task.taskAttemptId(), tick);
    TaskCompletionListener removal = ended -> TICKS.remove(ended.taskAttemptId());
    task.addTaskCompletionListener(removal);
  }

  @Override
  public <K, C> ShuffleReader<K, C> getReader(
      ShuffleHandle handle,
      int startMapIndex,
      int endMapIndex,
      int startPartition,
      int endPartition,
      TaskContext context,
      ShuffleReadMetricsReporter metrics) {
    long task = context.taskAttemptId();
    return local == null
        ? new Reader<>(handle, context)
        : local.reader(handle, startPartition, context, () -> TICKS.get(task));
  }

  @Override
  public <K, V> ShuffleWriter<K, V> getWriter(
      ShuffleHandle handle,
      long mapId,
      TaskContext context,
      ShuffleWriteMetricsReporter metrics) {
    return local == null
        ? super.getWriter(handle, mapId, context, metrics)
        : local.writer(handle, mapId, context);
  }

  @Override
  public boolean unregisterShuffle(int shuffle) {
    if (local != null) {
      local.remove(shuffle);
    }
    return super.unregisterShuffle(shuffle);
  }

  private static final class Reader<K, C> extends StreamingShuffleReader<K, C> {
    /** Made at the first use: threads that the constructor of Spark's class starts may be first. */
    private Messages messages;

    Reader(ShuffleHandle handle, TaskContext context) {
      super(handle, context, Option.empty(), new ErrorNotifier());
    }

    @Override
    public synchronized LinkedBlockingQueue<StreamingShuffleMessage> messageQueue() {
      if (messages == null) {
        messages = new Messages();
      }
      return messages;
    }

    @Override
    public Iterator<Product2<K, C>> read() {
      Iterator<Product2<K, C>> rows = super.read();
      messages.hasTicks = true;
      return new Rows<>(rows, context().taskAttemptId());
    }
  }

  private static final class Messages extends LinkedBlockingQueue<StreamingShuffleMessage> {
    private boolean hasTicks;
    private long tickAt = System.nanoTime() + TICK_NANOS;

    @Override
    public StreamingShuffleMessage poll(long timeout, TimeUnit unit) throws InterruptedException {
      StreamingShuffleMessage message = super.poll(timeout, unit);
      long now = System.nanoTime();
      if (message == null && hasTicks && now - tickAt >= 0) {
        tickAt = now + TICK_NANOS;
        throw new EmptyException();
      }
      return message;
    }
  }

  private static final class EmptyException extends RuntimeException {
    EmptyException() {
      super("no message has arrived", null, false, false);
    }
  }

  private static final class Rows<K, C> extends AbstractIterator<Product2<K, C>> {
    private final Iterator<Product2<K, C>> rows;
    private final long task;
    private Product2<K, C> tick;

    Rows(Iterator<Product2<K, C>> rows, long task) {
      this.rows = rows;
      this.task = task;
    }

    @Override
    @SuppressWarnings("unchecked")
    public boolean hasNext() {
      while (tick == null) {
        try {
          return rows.hasNext();
        } catch (EmptyException e) {
          InternalRow row = TICKS.get(task);
          tick = row == null ? null : new Tuple2<>((K) (Integer) 0, (C) row);
        }
      }
      return true;
    }

    @Override
    public Product2<K, C> next() {
      if (!hasNext() || tick == null) {
        return rows.next();
      }
      Product2<K, C> next = tick;
      tick = null;
      return next;
    }
  }
}
