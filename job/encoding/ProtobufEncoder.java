package streamjoin;

import java.nio.ByteBuffer;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.*;

/**
 * Encodes a row as a Protobuf message, the first one of its schema. The fields of a message are
 * numbered from 1 in the order of the columns (job/formats/proto_schema.py).
 *
 * <p>A field that is null is omitted, and so is an array or map that is null or empty. Protobuf has
 * no null within arrays and maps: a null is encoded as the default of its type.
 */
public final class ProtobufEncoder extends ValueEncoder {
  private static final long MICROS_A_SECOND = 1_000_000;
  private static final long NANOS_A_MICRO = 1_000;

  private final byte[] header;
  private final StructType type;
  private transient WireBuffer out;
  private transient MessageWriter message;

  /** Throws IllegalArgumentException if Protobuf has no type for a column. */
  public ProtobufEncoder(int schemaId, StructType type) {
    // The byte 0 after the id of the schema selects the first message.
    this.header = ByteBuffer.allocate(HEADER_BYTES + 1).put((byte) 0).putInt(schemaId).array();
    this.type = type;
    prepare();
  }

  @Override
  public byte[] encode(InternalRow row) {
    if (message == null) {
      prepare();
    }
    out.clear();
    out.raw(header);
    message.write(row, out);
    return out.toByteArray();
  }

  private void prepare() {
    out = new WireBuffer();
    message = new MessageWriter(type);
  }

  /** Writes the fields of a row. */
  private static final class MessageWriter {
    private final FieldWriter[] fields;

    MessageWriter(StructType type) {
      fields = new FieldWriter[type.length()];
      for (int i = 0; i < fields.length; i++) {
        fields[i] = field(i + 1, type.apply(i).dataType());
      }
    }

    void write(InternalRow row, WireBuffer out) {
      for (int i = 0; i < fields.length; i++) {
        if (!row.isNullAt(i)) {
          fields[i].write(row, i, out);
        }
      }
    }
  }

  /** Writes a field that is not null, with its tag. */
  private interface FieldWriter {
    void write(SpecializedGetters values, int index, WireBuffer out);
  }

  /** Writes a value without its tag. */
  private interface Value {
    void write(SpecializedGetters values, int index, WireBuffer out);
  }

  private static FieldWriter field(int number, DataType type) {
    if (type instanceof ArrayType) {
      return array(number, ((ArrayType) type).elementType());
    }
    if (type instanceof MapType) {
      return map(number, (MapType) type);
    }
    int wireType = wireType(type);
    Value value = value(type);
    return (values, index, out) -> {
      out.tag(number, wireType);
      value.write(values, index, out);
    };
  }

  /** Numbers and booleans are packed into one field, the default of Protobuf 3. */
  private static FieldWriter array(int number, DataType type) {
    int wireType = wireType(type);
    Value element = valueOrDefault(type);
    if (wireType == WireBuffer.BYTES) {
      return (values, index, out) -> {
        ArrayData array = values.getArray(index);
        for (int i = 0; i < array.numElements(); i++) {
          out.tag(number, wireType);
          element.write(array, i, out);
        }
      };
    }
    WireBuffer packed = new WireBuffer();
    return (values, index, out) -> {
      ArrayData array = values.getArray(index);
      packed.clear();
      for (int i = 0; i < array.numElements(); i++) {
        element.write(array, i, packed);
      }
      if (!packed.isEmpty()) {
        out.tag(number, WireBuffer.BYTES);
        out.bytes(packed);
      }
    };
  }

  private static FieldWriter map(int number, MapType type) {
    Value key = value(type.keyType());
    int keyWireType = wireType(type.keyType());
    Value value = valueOrDefault(type.valueType());
    int valueWireType = wireType(type.valueType());
    WireBuffer entry = new WireBuffer();
    return (values, index, out) -> {
      MapData map = values.getMap(index);
      for (int i = 0; i < map.numElements(); i++) {
        entry.clear();
        entry.tag(1, keyWireType);
        key.write(map.keyArray(), i, entry);
        entry.tag(2, valueWireType);
        value.write(map.valueArray(), i, entry);
        out.tag(number, WireBuffer.BYTES);
        out.bytes(entry);
      }
    };
  }

  private static int wireType(DataType type) {
    if (type instanceof DoubleType) {
      return WireBuffer.FIXED64;
    }
    if (type instanceof FloatType) {
      return WireBuffer.FIXED32;
    }
    boolean isVarint = type instanceof BooleanType || type instanceof IntegralType;
    return isVarint ? WireBuffer.VARINT : WireBuffer.BYTES;
  }

  /** Writes a null as the default of its type: 0 in the width of the type, or an empty value. */
  private static Value valueOrDefault(DataType type) {
    Value value = value(type);
    int wireType = wireType(type);
    return (values, index, out) -> {
      if (!values.isNullAt(index)) {
        value.write(values, index, out);
      } else if (wireType == WireBuffer.FIXED64) {
        out.fixed64(0);
      } else if (wireType == WireBuffer.FIXED32) {
        out.fixed32(0);
      } else {
        out.varint(0);
      }
    };
  }

  private static Value value(DataType type) {
    if (type instanceof BooleanType) {
      return (values, index, out) -> out.varint(values.getBoolean(index) ? 1 : 0);
    }
    if (type instanceof ByteType) {
      return (values, index, out) -> out.varint(values.getByte(index));
    }
    if (type instanceof ShortType) {
      return (values, index, out) -> out.varint(values.getShort(index));
    }
    if (type instanceof IntegerType) {
      return (values, index, out) -> out.varint(values.getInt(index));
    }
    if (type instanceof LongType) {
      return (values, index, out) -> out.varint(values.getLong(index));
    }
    if (type instanceof FloatType) {
      return (values, index, out) -> out.fixed32(Float.floatToIntBits(values.getFloat(index)));
    }
    if (type instanceof DoubleType) {
      return (values, index, out) -> out.fixed64(Double.doubleToLongBits(values.getDouble(index)));
    }
    if (type instanceof StringType) {
      // A STRING that was cast from bytes may be invalid UTF-8, which Protobuf readers reject.
      return (values, index, out) ->
          out.bytes(values.getUTF8String(index).makeValid().getBytes());
    }
    if (type instanceof BinaryType) {
      return (values, index, out) -> out.bytes(values.getBinary(index));
    }
    if (type instanceof TimestampType) {
      return timestamp();
    }
    if (type instanceof StructType) {
      return message((StructType) type);
    }
    throw new IllegalArgumentException("Protobuf has no type for Spark's " + type.sql());
  }

  /** google.protobuf.Timestamp: seconds since 1970 and the remaining nanoseconds. */
  private static Value timestamp() {
    WireBuffer inner = new WireBuffer();
    return (values, index, out) -> {
      long micros = values.getLong(index);
      inner.clear();
      inner.tag(1, WireBuffer.VARINT);
      inner.varint(Math.floorDiv(micros, MICROS_A_SECOND));
      inner.tag(2, WireBuffer.VARINT);
      inner.varint(Math.floorMod(micros, MICROS_A_SECOND) * NANOS_A_MICRO);
      out.bytes(inner);
    };
  }

  private static Value message(StructType type) {
    MessageWriter message = new MessageWriter(type);
    WireBuffer inner = new WireBuffer();
    return (values, index, out) -> {
      inner.clear();
      message.write(values.getStruct(index, type.length()), inner);
      out.bytes(inner);
    };
  }
}
