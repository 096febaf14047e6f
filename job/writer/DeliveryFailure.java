package streamjoin;

import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.AuthenticationException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/** Reason why a batch was not delivered in a slot. */
public final class DeliveryFailure extends RuntimeException {
  private static final String ABORTED = "aborted";
  private static final String FENCED = "fenced";
  private static final String OVERDUE =
      "the transaction was open for longer than its timeout. If this repeats, add cores to the job, "
          + "or find out why the brokers are slow";

  private final String kind;
  private final long batchId;
  private final SlotId slot;
  private final boolean isRetryable;
  private final short errorCode;

  DeliveryFailure(String kind, long batchId, SlotId slot, String message, boolean isRetryable) {
    this(kind, batchId, slot, message, isRetryable, Errors.NONE);
  }

  private DeliveryFailure(
      String kind, long batchId, SlotId slot, String message, boolean isRetryable, Errors error) {
    super(message);
    this.kind = kind;
    this.batchId = batchId;
    this.slot = slot;
    this.isRetryable = isRetryable;
    errorCode = error.code();
  }

  /** "aborted", "disagreement", "fenced", "taken_over" or "unavailable". */
  public String kind() {
    return kind;
  }

  public long batchId() {
    return batchId;
  }

  /** Name of the slot. */
  public String slot() {
    return slot.name();
  }

  public boolean isRetryable() {
    return isRetryable;
  }

  /** Kafka's code of the error, by which job/delivery/producers.py recognizes lasting errors. */
  public short errorCode() {
    return errorCode;
  }

  /**
   * The failure for an error of a producer. Errors of the connection, of a login and of an ACL are
   * returned unchanged: failures.py classifies them.
   *
   * @param isOverdue whether the transaction was open for longer than its timeout, so that the
   *     coordinator has aborted it and fenced its producer
   */
  static RuntimeException of(
      KafkaException error, long batchId, SlotId slot, boolean isOverdue) {
    if (has(error, ProducerFencedException.class, InvalidProducerEpochException.class)) {
      return isOverdue
          ? new DeliveryFailure(ABORTED, batchId, slot, OVERDUE, true)
          : new DeliveryFailure(FENCED, batchId, slot, text(error), false);
    }
    if (has(
        error,
        AuthenticationException.class,
        AuthorizationException.class,
        RetriableException.class)) {
      return error;
    }
    Throwable cause = error.getCause() == null ? error : error.getCause();
    return new DeliveryFailure(
        ABORTED, batchId, slot, text(cause), true, Errors.forException(cause));
  }

  /** Some errors of Kafka's client have no message. */
  private static String text(Throwable error) {
    return error.getMessage() == null ? error.getClass().getSimpleName() : error.getMessage();
  }

  private static boolean has(Throwable error, Class<?>... kinds) {
    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
      for (Class<?> kind : kinds) {
        if (kind.isInstance(cause)) {
          return true;
        }
      }
    }
    return false;
  }
}
