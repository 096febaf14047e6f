package streamjoin;

import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import org.apache.spark.Partitioner;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.scheduler.MapStatus$;
import org.apache.spark.shuffle.BaseShuffleHandle;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.util.TaskCompletionListener;
import scala.Option;
import scala.Product2;
import scala.Some;
import scala.Tuple2;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * The shuffle of real-time mode between the tasks of one JVM: a queue for each task that reads.
 *
 * <p>Spark's own shuffle of real-time mode sends the rows through sockets also within a JVM. At 1,000
 * records/s a side it takes a third of the CPU time of a job.
 *
 * <p>A reader looks at its queue each {@code handOverMs} while rows arrive, so that several rows cost
 * one wake-up. Once none has arrived for some time it waits until a writer wakes it.
 *
 * <p>The watermark of a task follows the one that the driver offers once the task has read the rows
 * that were in its queue before: they do not become late while they wait.
 */
final class LocalShuffle {
  /** A writer waits while a queue has more bytes. */
  private static final long QUEUED_BYTES_MAX = 4 << 20;

  private static final long FULL_WAIT_NANOS = TimeUnit.MILLISECONDS.toNanos(1);

  /** A reader waits to be woken once no row has arrived for so long. */
  private static final long QUIET_NANOS = TimeUnit.MILLISECONDS.toNanos(50);

  /** The rows that the task of this thread reads. */
  private static final ThreadLocal<Rows<?, ?>> OF_TASK = new ThreadLocal<>();

  private final Map<Integer, Map<Integer, Channel>> shuffles = new ConcurrentHashMap<>();
  private final long handOverNanos;

  LocalShuffle(long handOverMs) {
    handOverNanos = TimeUnit.MILLISECONDS.toNanos(handOverMs);
  }

  /** Call it if no task of the shuffle will run. */
  void remove(int shuffle) {
    shuffles.remove(shuffle);
  }

  private Channel channel(int shuffle, int partition) {
    return shuffles
        .computeIfAbsent(shuffle, each -> new ConcurrentHashMap<>())
        .computeIfAbsent(partition, each -> new Channel());
  }

  /** The last element that a writer adds to a queue. */
  private static final class End {
    final int writers;

    End(int writers) {
      this.writers = writers;
    }
  }

  /** From all writers to one reader. */
  private static final class Channel {
    /** Rows, and an End of each writer. */
    final Queue<Object> queue = new ConcurrentLinkedQueue<>();

    final AtomicLong bytes = new AtomicLong();

    /** Number of rows that writers have added. */
    final AtomicLong added = new AtomicLong();

    /** The reader, if it waits to be woken. */
    volatile Thread waiting;

    void add(Object element) {
      queue.add(element);
      Thread reader = waiting;
      if (reader != null) {
        LockSupport.unpark(reader);
      }
    }
  }

  <K, V> ShuffleWriter<K, V> writer(ShuffleHandle handle, long mapId, TaskContext context) {
    return new Writer<>((BaseShuffleHandle<K, V, ?>) handle, mapId, context);
  }

  private final class Writer<K, V> extends ShuffleWriter<K, V> {
    private final Partitioner partitioner;
    private final long mapId;
    private final TaskContext context;
    private final Channel[] channels;

    Writer(BaseShuffleHandle<K, V, ?> handle, long mapId, TaskContext context) {
      partitioner = handle.dependency().partitioner();
      this.mapId = mapId;
      this.context = context;
      channels = new Channel[partitioner.numPartitions()];
      for (int partition = 0; partition < channels.length; partition++) {
        channels[partition] = channel(handle.shuffleId(), partition);
      }
    }

    @Override
    public void write(Iterator<Product2<K, V>> rows) {
      while (rows.hasNext()) {
        Product2<K, V> row = rows.next();
        UnsafeRow copy = ((UnsafeRow) (Object) row._2()).copy();
        Channel channel = channels[partitioner.getPartition(row._1())];
        while (channel.bytes.get() > QUEUED_BYTES_MAX) {
          context.killTaskIfInterrupted();
          LockSupport.parkNanos(FULL_WAIT_NANOS);
        }
        channel.bytes.addAndGet(copy.getSizeInBytes());
        channel.added.incrementAndGet();
        channel.add(copy);
      }
      End end = new End(context.numPartitions());
      for (Channel channel : channels) {
        channel.add(end);
      }
    }

    @Override
    public Option<MapStatus> stop(boolean success) {
      return new Some<>(
          MapStatus$.MODULE$.apply(
              SparkEnv.get().blockManager().shuffleServerId(),
              getPartitionLengths(),
              mapId,
              MapStatus$.MODULE$.apply$default$4()));
    }

    @Override
    public long[] getPartitionLengths() {
      return new long[channels.length];
    }
  }

  /** `tick`: a row that is read now and then while no other arrives. It may give null. */
  <K, C> ShuffleReader<K, C> reader(
      ShuffleHandle handle, int partition, TaskContext context, Supplier<? extends Object> tick) {
    Channel channel = channel(handle.shuffleId(), partition);
    TaskCompletionListener discard =
        ended -> {
          channel.queue.clear();
          OF_TASK.remove();
        };
    context.addTaskCompletionListener(discard);
    return () -> {
      Rows<K, C> rows = new Rows<>(channel, context, tick);
      OF_TASK.set(rows);
      return rows;
    };
  }

  /** The watermark of the task of this thread, when the driver offers `offered`. */
  static long watermark(long offered) {
    Rows<?, ?> rows = OF_TASK.get();
    return rows == null ? offered : rows.watermark(offered);
  }

  private final class Rows<K, C> extends AbstractIterator<Product2<K, C>> {
    private final Channel channel;
    private final TaskContext context;
    private final Supplier<? extends Object> tick;
    private long processed;
    private boolean isProcessed = true;
    private long watermark = LiveWatermark.NONE;

    /** The last watermark that was looked at, and how many rows had been added then. */
    private long offeredBefore = LiveWatermark.NONE;

    private long addedBefore;
    private int ends;
    private int writers = Integer.MAX_VALUE;
    private Object next;
    private long arrivedAt = System.nanoTime();
    private long tickAt = arrivedAt + TickingShuffleManager.TICK_NANOS;

    Rows(Channel channel, TaskContext context, Supplier<? extends Object> tick) {
      this.channel = channel;
      this.context = context;
      this.tick = tick;
    }

    @Override
    public boolean hasNext() {
      if (next == null && !isProcessed) {
        isProcessed = true;
        processed++;
      }
      while (next == null && ends < writers) {
        Object element = channel.queue.poll();
        if (element instanceof End) {
          ends++;
          writers = ((End) element).writers;
        } else if (element != null) {
          channel.bytes.addAndGet(-((UnsafeRow) element).getSizeInBytes());
          arrivedAt = 0;
          isProcessed = false;
          next = element;
        } else {
          await();
        }
      }
      return next != null;
    }

    long watermark(long offered) {
      if (watermark == offeredBefore && offered > offeredBefore) {
        addedBefore = channel.added.get();
        offeredBefore = offered;
      }
      if (watermark != offeredBefore && processed >= addedBefore) {
        watermark = offeredBefore;
        return watermark(offered);
      }
      return watermark;
    }

    /** Waits for a row. It may return before one has arrived, also with a tick. */
    private void await() {
      context.killTaskIfInterrupted();
      long now = System.nanoTime();
      if (arrivedAt == 0) {
        arrivedAt = now; // The clock is not read with each row.
      }
      if (now - tickAt >= 0) {
        tickAt = now + TickingShuffleManager.TICK_NANOS;
        next = tick.get();
      } else if (now - arrivedAt < QUIET_NANOS) {
        LockSupport.parkNanos(handOverNanos);
      } else {
        channel.waiting = Thread.currentThread();
        if (channel.queue.isEmpty()) {
          LockSupport.parkNanos(tickAt - now);
        }
        channel.waiting = null;
      }
    }

    @Override
    @SuppressWarnings("unchecked")
    public Product2<K, C> next() {
      if (!hasNext()) {
        throw new NoSuchElementException();
      }
      Product2<K, C> row = new Tuple2<>((K) (Integer) 0, (C) next);
      next = null;
      return row;
    }
  }
}
