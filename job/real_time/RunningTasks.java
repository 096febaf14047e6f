package streamjoin;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.scheduler.AccumulableInfo;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorMetricsUpdate;
import org.apache.spark.util.AccumulatorV2;
import scala.Tuple4;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * Values of accumulators in tasks that have not ended, from the heartbeats of the executors. Spark
 * adds the value of a task to an accumulator only when the task ends, in real time with the
 * interval.
 */
final class RunningTasks extends SparkListener {
  /** Values by id of the accumulator and by task. */
  private final Map<Long, Map<Object, Long>> values = new ConcurrentHashMap<>();

  void watch(AccumulatorV2<?, ?> accumulator) {
    values.put(accumulator.id(), new ConcurrentHashMap<>());
  }

  /** Called when an interval begins, because ended tasks are not removed. */
  void forget() {
    values.values().forEach(Map::clear);
  }

  long sum(AccumulatorV2<?, ?> accumulator) {
    return values.get(accumulator.id()).values().stream().mapToLong(Long::longValue).sum();
  }

  long max(AccumulatorV2<?, ?> accumulator) {
    return values.get(accumulator.id()).values().stream()
        .mapToLong(Long::longValue)
        .max()
        .orElse(NewestTime.NONE);
  }

  @Override
  public void onExecutorMetricsUpdate(SparkListenerExecutorMetricsUpdate event) {
    Iterator<Tuple4<Object, Object, Object, Seq<AccumulableInfo>>> tasks =
        event.accumUpdates().iterator();
    while (tasks.hasNext()) {
      Tuple4<Object, Object, Object, Seq<AccumulableInfo>> task = tasks.next();
      Iterator<AccumulableInfo> updates = task._4().iterator();
      while (updates.hasNext()) {
        AccumulableInfo update = updates.next();
        Map<Object, Long> byTask = values.get(update.id());
        if (byTask != null && update.update().isDefined()) {
          byTask.put(task._1(), (Long) update.update().get());
        }
      }
    }
  }
}
