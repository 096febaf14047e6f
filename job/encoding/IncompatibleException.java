package streamjoin;

/**
 * A value cannot be read with the schema of the job. Has no stack trace: it would cost more than a
 * record.
 */
final class IncompatibleException extends RuntimeException {
  IncompatibleException(String message) {
    super(message, null, false, false);
  }
}
