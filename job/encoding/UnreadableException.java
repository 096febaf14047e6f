package streamjoin;

/** A value cannot be decoded. Without a stack trace, which costs more than a record. */
final class UnreadableException extends RuntimeException {
  UnreadableException(String message) {
    super(message, null, false, false);
  }
}
