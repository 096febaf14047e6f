package streamjoin;

import java.nio.ByteBuffer;
import java.util.Arrays;
import org.apache.avro.Schema;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads bytes in Avro's binary encoding in order. Unlike Avro's own decoder it compares each length
 * with the number of remaining bytes before it allocates memory.
 */
final class AvroInput {
  /** Items of a value beyond the number of its bytes. Items such as null take no bytes. */
  private static final int EMPTY_ITEMS_MAX = 1_000_000;

  private final byte[] bytes;
  private int at;

  /** Items of all blocks that were read: many small blocks could take as long as a large one. */
  private long items;

  AvroInput(byte[] bytes, int at) {
    this.bytes = bytes;
    this.at = at;
  }

  int remaining() {
    return bytes.length - at;
  }

  long readLong() {
    long value = 0;
    for (int shift = 0; shift < Long.SIZE; shift += 7) {
      byte next = bytes[take(1)];
      value |= (next & 0x7FL) << shift;
      if (next >= 0) {
        return value >>> 1 ^ -(value & 1);
      }
    }
    throw new UnreadableException("a number has more than 10 bytes");
  }

  int readInt() {
    long value = readLong();
    if (value != (int) value) {
      throw new UnreadableException("an int has more than 32 bits");
    }
    return (int) value;
  }

  boolean readBoolean() {
    return bytes[take(1)] != 0;
  }

  float readFloat() {
    return Float.intBitsToFloat(Integer.reverseBytes(ByteBuffer.wrap(bytes).getInt(take(4))));
  }

  double readDouble() {
    return Double.longBitsToDouble(Long.reverseBytes(ByteBuffer.wrap(bytes).getLong(take(8))));
  }

  /** Index of a union's branch or an enum's symbol, below `end`. */
  int readIndex(int end) {
    long index = readLong();
    if (index < 0 || index >= end) {
      throw new UnreadableException("index " + index + " is not one of " + end);
    }
    return (int) index;
  }

  byte[] readBytes() {
    return readFixed(readLength());
  }

  byte[] readFixed(int size) {
    int start = take(size);
    return Arrays.copyOfRange(bytes, start, start + size);
  }

  UTF8String readText() {
    UTF8String text = UTF8String.fromBytes(readBytes());
    if (!text.isValid()) {
      throw new UnreadableException("a string is not UTF-8");
    }
    return text;
  }

  /** Number of items in the next block of an array or a map. 0: the array or map has ended. */
  long readBlock() {
    long count = readLong();
    if (count < 0) {
      count = -count;
      readLong(); // the size of the block in bytes
    }
    long itemsMax = bytes.length + (long) EMPTY_ITEMS_MAX;
    if (count < 0 || count > itemsMax - items) {
      throw new UnreadableException("the arrays and maps have more than " + itemsMax + " items");
    }
    items += count;
    return count;
  }

  /** Skips a value of the schema. */
  void skip(Schema schema) {
    switch (schema.getType()) {
      case NULL:
        break;
      case BOOLEAN:
        take(1);
        break;
      case INT:
      case LONG:
      case ENUM:
        readLong();
        break;
      case FLOAT:
        take(4);
        break;
      case DOUBLE:
        take(8);
        break;
      case FIXED:
        take(schema.getFixedSize());
        break;
      case ARRAY:
        skipBlocks(schema.getElementType(), false);
        break;
      case MAP:
        skipBlocks(schema.getValueType(), true);
        break;
      case UNION:
        skip(schema.getTypes().get(readIndex(schema.getTypes().size())));
        break;
      case RECORD:
        for (Schema.Field field : schema.getFields()) {
          skip(field.schema());
        }
        break;
      default: // a string or bytes
        take(readLength());
    }
  }

  private void skipBlocks(Schema item, boolean isMap) {
    for (long count = readBlock(); count > 0; count = readBlock()) {
      for (long i = 0; i < count; i++) {
        if (isMap) {
          take(readLength());
        }
        skip(item);
      }
    }
  }

  private int readLength() {
    long length = readLong();
    if (length < 0 || length > remaining()) {
      throw new UnreadableException("length " + length + ", and " + remaining() + " bytes are left");
    }
    return (int) length;
  }

  private int take(int count) {
    if (count > remaining()) {
      throw new UnreadableException("the value ends too early");
    }
    int start = at;
    at += count;
    return start;
  }
}
