package streamjoin;

/** A value cannot be decoded. Has no stack trace: it would cost more than a record. */
final class UnreadableException extends RuntimeException {
  UnreadableException(String message) {
    super(message, null, false, false);
  }
}
