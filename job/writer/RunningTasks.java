package streamjoin;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.spark.scheduler.AccumulableInfo;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorMetricsUpdate;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import scala.Tuple4;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * Tasks that have not ended, with their values of accumulators, from the heartbeats of the
 * executors. Spark adds the value of a task to an accumulator only when the task ends, in real time
 * with the interval.
 *
 * <p>A heartbeat lists the tasks of an executor. Spark's listener bus may deliver it after the end
 * of a task that it lists.
 */
public final class RunningTasks extends SparkListener {
  /** Values by id of the accumulator and by task. */
  private final Map<Long, Map<Long, long[]>> values = new HashMap<>();

  /** Time of the last heartbeat of each running task, or of its start. */
  private final Map<Long, Long> heardNanos = new HashMap<>();

  public synchronized void watch(long accumulator) {
    values.put(accumulator, new HashMap<>());
  }

  public synchronized void started(long task) {
    heardNanos.put(task, System.nanoTime());
  }

  /** The values of the task stay until the next interval begins. */
  public synchronized void ended(long task) {
    heardNanos.remove(task);
  }

  /** Called for each task in a heartbeat. Returns whether the task is running. */
  public synchronized boolean heard(long task) {
    return heardNanos.replace(task, System.nanoTime()) != null;
  }

  public void report(long task, long accumulator, long value) {
    report(task, accumulator, new long[] {value});
  }

  private synchronized void report(long task, long accumulator, long[] value) {
    Map<Long, long[]> byTask = values.get(accumulator);
    if (byTask != null && heardNanos.containsKey(task)) {
      byTask.put(task, value);
    }
  }

  /**
   * Called when an interval begins: forgets the values of the tasks that have ended, and tasks
   * without a heartbeat for `silenceMs`, whose end Spark's listener bus has dropped.
   */
  public synchronized void beginInterval(long silenceMs) {
    Set<Long> silent = silent(silenceMs);
    heardNanos.keySet().removeAll(silent);
    values.values().forEach(byTask -> byTask.keySet().retainAll(heardNanos.keySet()));
  }

  /** Whether tasks are running and each has sent a heartbeat in the last `silenceMs`. */
  public synchronized boolean areAlive(long silenceMs) {
    return !heardNanos.isEmpty() && silent(silenceMs).isEmpty();
  }

  private Set<Long> silent(long silenceMs) {
    long since = System.nanoTime() - TimeUnit.MILLISECONDS.toNanos(silenceMs);
    Set<Long> silent = new HashSet<>();
    heardNanos.forEach(
        (task, at) -> {
          if (at - since <= 0) {
            silent.add(task);
          }
        });
    return silent;
  }

  public long sum(long accumulator) {
    return sum(accumulator, 0);
  }

  /** Of an accumulator with several numbers: the sum of those at a place. */
  synchronized long sum(long accumulator, int place) {
    return values.get(accumulator).values().stream().mapToLong(value -> value[place]).sum();
  }

  synchronized long max(long accumulator) {
    return values.get(accumulator).values().stream()
        .mapToLong(value -> value[0])
        .max()
        .orElse(NewestTime.NONE);
  }

  @Override
  public void onTaskStart(SparkListenerTaskStart event) {
    started(event.taskInfo().taskId());
  }

  @Override
  public void onTaskEnd(SparkListenerTaskEnd event) {
    ended(event.taskInfo().taskId());
  }

  @Override
  public void onExecutorMetricsUpdate(SparkListenerExecutorMetricsUpdate event) {
    Iterator<Tuple4<Object, Object, Object, Seq<AccumulableInfo>>> tasks =
        event.accumUpdates().iterator();
    while (tasks.hasNext()) {
      Tuple4<Object, Object, Object, Seq<AccumulableInfo>> task = tasks.next();
      long id = (Long) task._1();
      if (!heard(id)) {
        continue;
      }
      Iterator<AccumulableInfo> updates = task._4().iterator();
      while (updates.hasNext()) {
        AccumulableInfo update = updates.next();
        Object value = update.update().isDefined() ? update.update().get() : null;
        if (value instanceof Long) {
          report(id, update.id(), (Long) value);
        } else if (value instanceof long[]) {
          report(id, update.id(), (long[]) value);
        }
      }
    }
  }
}
