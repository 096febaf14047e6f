package streamjoin;

/** A value cannot be read with the schema of the job. Without a stack trace. */
final class IncompatibleException extends RuntimeException {
  IncompatibleException(String message) {
    super(message, null, false, false);
  }
}
