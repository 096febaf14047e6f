package streamjoin;

import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;

/**
 * Whether a producer may have sent a request twice, from the metrics of its client.
 *
 * <p>The client sends a request again if the connection is closed before the answer arrives. A
 * closed connection alone is no sign of that: the client closes idle connections after 9 minutes,
 * and the broker after 10. One of them is the connection to the bootstrap server.
 */
public final class SentRequests {
  private static final String GROUP = "producer-metrics";
  private static final long LAST_ANSWER_NANOS = TimeUnit.MILLISECONDS.toNanos(500);
  private static final long POLL_NANOS = TimeUnit.MILLISECONDS.toNanos(1);

  private final Metric closedConnections;
  private final Metric sent;
  private final Metric answered;
  private double closedBefore;

  public SentRequests(Map<MetricName, ? extends Metric> metrics) {
    closedConnections = metric(metrics, "connection-close-total");
    sent = metric(metrics, "request-total");
    answered = metric(metrics, "response-total");
  }

  private static Metric metric(Map<MetricName, ? extends Metric> metrics, String name) {
    for (Map.Entry<MetricName, ? extends Metric> entry : metrics.entrySet()) {
      MetricName metric = entry.getKey();
      if (metric.name().equals(name) && metric.group().equals(GROUP)) {
        return entry.getValue();
      }
    }
    throw new IllegalStateException("Kafka's producer has no metric " + name);
  }

  /** Called before a request. */
  public void begin() {
    closedBefore = value(closedConnections);
  }

  /** Whether the request since `begin` may have been sent twice. Called after its answer. */
  public boolean isSentTwice() {
    return value(closedConnections) != closedBefore && isAnyLost();
  }

  /** Waits for the answers of other requests, for example for metadata. */
  private boolean isAnyLost() {
    long deadline = System.nanoTime() + LAST_ANSWER_NANOS;
    do {
      // In this order, so that a request that is answered in between hides no lost one.
      double answers = value(answered);
      if (value(sent) == answers) {
        return false;
      }
      LockSupport.parkNanos(POLL_NANOS);
    } while (System.nanoTime() < deadline);
    return true;
  }

  private static double value(Metric metric) {
    return (Double) metric.metricValue();
  }
}
