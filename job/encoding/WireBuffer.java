package streamjoin;

import java.util.Arrays;

/** Bytes in the wire format of Protobuf. */
final class WireBuffer {
  static final int VARINT = 0;
  static final int FIXED64 = 1;
  static final int BYTES = 2;
  static final int FIXED32 = 5;

  private static final int VARINT_BYTES_MAX = 10;

  private byte[] bytes = new byte[256];
  private int length = 0;

  void clear() {
    length = 0;
  }

  boolean isEmpty() {
    return length == 0;
  }

  byte[] toByteArray() {
    return Arrays.copyOf(bytes, length);
  }

  void tag(int field, int wireType) {
    varint((long) field << 3 | wireType);
  }

  /** A negative number takes 10 bytes, also in an int32. */
  void varint(long value) {
    reserve(VARINT_BYTES_MAX);
    long rest = value;
    while ((rest & ~0x7FL) != 0) {
      bytes[length++] = (byte) (rest & 0x7F | 0x80);
      rest >>>= 7;
    }
    bytes[length++] = (byte) rest;
  }

  void fixed32(int value) {
    reserve(Integer.BYTES);
    for (int shift = 0; shift < Integer.SIZE; shift += Byte.SIZE) {
      bytes[length++] = (byte) (value >>> shift);
    }
  }

  void fixed64(long value) {
    reserve(Long.BYTES);
    for (int shift = 0; shift < Long.SIZE; shift += Byte.SIZE) {
      bytes[length++] = (byte) (value >>> shift);
    }
  }

  void raw(byte[] value) {
    raw(value, value.length);
  }

  /** Writes the length of `value`, then its bytes. */
  void bytes(byte[] value) {
    varint(value.length);
    raw(value, value.length);
  }

  /** Writes the length of `value`, then its bytes. */
  void bytes(WireBuffer value) {
    varint(value.length);
    raw(value.bytes, value.length);
  }

  private void raw(byte[] value, int count) {
    reserve(count);
    System.arraycopy(value, 0, bytes, length, count);
    length += count;
  }

  private void reserve(int count) {
    if (bytes.length - length < count) {
      bytes = Arrays.copyOf(bytes, Math.max(2 * bytes.length, length + count));
    }
  }
}
