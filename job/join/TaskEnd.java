package streamjoin;

import java.lang.reflect.Proxy;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.StatefulProcessorHandleImpl;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.StatefulProcessorHandleState;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.ttl.TTLState;

/**
 * Calls a function at the end of each task, before Spark commits the store.
 *
 * <p>A processor has no such call: its `close` is after the commit, and its timers need a watermark
 * that advances. But Spark removes expired variables before each commit, also of a partition that
 * has received no rows. This class adds a variable without content.
 */
final class TaskEnd {
  private TaskEnd() {}

  static void call(StatefulProcessorHandleImpl handle, Runnable function) {
    Object state =
        Proxy.newProxyInstance(
            TaskEnd.class.getClassLoader(),
            new Class<?>[] {TTLState.class},
            (proxy, method, arguments) -> {
              switch (method.getName()) {
                case "clearExpiredStateForAllKeys":
                  // In real time Spark also calls it between two rows.
                  if (isAtEnd(handle)) {
                    function.run();
                  }
                  return 0L;
                case "equals":
                  return proxy == arguments[0];
                case "hashCode":
                  return System.identityHashCode(proxy);
                default:
                  throw new UnsupportedOperationException(method.getName());
              }
            });
    handle.ttlStates().add((TTLState) state);
  }

  private static boolean isAtEnd(StatefulProcessorHandleImpl handle) {
    return handle.getHandleState().equals(StatefulProcessorHandleState.TIMER_PROCESSED());
  }
}
