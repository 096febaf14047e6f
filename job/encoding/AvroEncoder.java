package streamjoin;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.List;
import org.apache.avro.LogicalType;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.EncoderFactory;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.*;

/**
 * Encodes a row as an Avro record. Each field, element and value of a map is a union of null and
 * its type. If the schema is not a record, the row has one field, which is not null, and its value
 * is encoded.
 */
public final class AvroEncoder extends ValueEncoder {
  private final int schemaId;
  private final String schema;
  private final StructType type;
  private transient ByteArrayOutputStream bytes;
  private transient BinaryEncoder out;
  private transient FieldWriter value;

  /** Throws IllegalArgumentException if rows of `type` are not values of `schema`. */
  public AvroEncoder(int schemaId, String schema, StructType type) {
    this.schemaId = schemaId;
    this.schema = schema;
    this.type = type;
    prepare();
  }

  @Override
  public byte[] encode(InternalRow row) {
    if (value == null) {
      prepare();
    }
    bytes.reset();
    try {
      out.writeFixed(ByteBuffer.allocate(HEADER_BYTES).put((byte) 0).putInt(schemaId).array());
      value.write(row, 0, out);
      out.flush();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return bytes.toByteArray();
  }

  private void prepare() {
    bytes = new ByteArrayOutputStream(256);
    out = EncoderFactory.get().binaryEncoder(bytes, null);
    Schema parsed = new Schema.Parser().parse(schema);
    if (parsed.getType() == Schema.Type.RECORD) {
      Writer record = new Writer(type, parsed);
      value = (row, index, written) -> record.write((InternalRow) row, written);
    } else {
      check(type.length() == 1, type, parsed);
      value = notNull(type.apply(0).dataType(), parsed);
    }
  }

  /** Writes the fields of a row. */
  private static final class Writer {
    private final FieldWriter[] fields;

    Writer(StructType type, Schema record) {
      check(record.getFields().size() == type.length(), type, record);
      fields = new FieldWriter[type.length()];
      for (int i = 0; i < fields.length; i++) {
        Schema.Field field = record.getFields().get(i);
        check(field.name().equals(type.apply(i).name()), type, record);
        fields[i] = nullable(type.apply(i).dataType(), field.schema());
      }
    }

    void write(InternalRow row, BinaryEncoder out) throws IOException {
      for (int i = 0; i < fields.length; i++) {
        fields[i].write(row, i, out);
      }
    }
  }

  private interface FieldWriter {
    void write(SpecializedGetters values, int index, BinaryEncoder out) throws IOException;
  }

  private static FieldWriter nullable(DataType type, Schema union) {
    List<Schema> branches = union.getTypes();
    check(branches.size() == 2 && branches.get(0).getType() == Schema.Type.NULL, type, union);
    FieldWriter writer = notNull(type, branches.get(1));
    return (values, index, out) -> {
      if (values.isNullAt(index)) {
        out.writeIndex(0);
      } else {
        out.writeIndex(1);
        writer.write(values, index, out);
      }
    };
  }

  private static FieldWriter notNull(DataType type, Schema schema) {
    Schema.Type kind = schema.getType();
    LogicalType logical = schema.getLogicalType();
    if (type instanceof StructType) {
      StructType struct = (StructType) type;
      check(kind == Schema.Type.RECORD, type, schema);
      Writer record = new Writer(struct, schema);
      return (values, index, out) -> record.write(values.getStruct(index, struct.length()), out);
    }
    if (type instanceof ArrayType) {
      check(kind == Schema.Type.ARRAY, type, schema);
      return array(nullable(((ArrayType) type).elementType(), schema.getElementType()));
    }
    if (type instanceof MapType) {
      MapType map = (MapType) type;
      check(kind == Schema.Type.MAP && map.keyType() instanceof StringType, type, schema);
      return map(nullable(map.valueType(), schema.getValueType()));
    }
    if (type instanceof DecimalType) {
      DecimalType decimal = (DecimalType) type;
      LogicalType expected = LogicalTypes.decimal(decimal.precision(), decimal.scale());
      check(kind == Schema.Type.BYTES && expected.equals(logical), type, schema);
      return decimal(decimal.precision(), decimal.scale());
    }
    if (type instanceof DateType) {
      check(kind == Schema.Type.INT && LogicalTypes.date().equals(logical), type, schema);
      return (values, index, out) -> out.writeInt(values.getInt(index));
    }
    if (type instanceof TimestampType) {
      LogicalType expected = LogicalTypes.timestampMicros();
      check(kind == Schema.Type.LONG && expected.equals(logical), type, schema);
      return (values, index, out) -> out.writeLong(values.getLong(index));
    }
    check(logical == null, type, schema);
    return primitive(type, schema);
  }

  private static FieldWriter primitive(DataType type, Schema schema) {
    switch (schema.getType()) {
      case BOOLEAN:
        check(type instanceof BooleanType, type, schema);
        return (values, index, out) -> out.writeBoolean(values.getBoolean(index));
      case INT:
        if (type instanceof ByteType) {
          return (values, index, out) -> out.writeInt(values.getByte(index));
        }
        if (type instanceof ShortType) {
          return (values, index, out) -> out.writeInt(values.getShort(index));
        }
        check(type instanceof IntegerType, type, schema);
        return (values, index, out) -> out.writeInt(values.getInt(index));
      case LONG:
        check(type instanceof LongType, type, schema);
        return (values, index, out) -> out.writeLong(values.getLong(index));
      case FLOAT:
        check(type instanceof FloatType, type, schema);
        return (values, index, out) -> out.writeFloat(values.getFloat(index));
      case DOUBLE:
        check(type instanceof DoubleType, type, schema);
        return (values, index, out) -> out.writeDouble(values.getDouble(index));
      case STRING:
        check(type instanceof StringType, type, schema);
        // A STRING that was cast from bytes may be invalid UTF-8, which Avro readers reject.
        return (values, index, out) ->
            out.writeBytes(values.getUTF8String(index).makeValid().getBytes());
      default:
        check(schema.getType() == Schema.Type.BYTES && type instanceof BinaryType, type, schema);
        return (values, index, out) -> out.writeBytes(values.getBinary(index));
    }
  }

  private static FieldWriter decimal(int precision, int scale) {
    return (values, index, out) ->
        out.writeBytes(
            values
                .getDecimal(index, precision, scale)
                .toJavaBigDecimal()
                .setScale(scale)
                .unscaledValue()
                .toByteArray());
  }

  private static FieldWriter array(FieldWriter element) {
    return (values, index, out) -> {
      ArrayData array = values.getArray(index);
      out.writeArrayStart();
      out.setItemCount(array.numElements());
      for (int i = 0; i < array.numElements(); i++) {
        out.startItem();
        element.write(array, i, out);
      }
      out.writeArrayEnd();
    };
  }

  private static FieldWriter map(FieldWriter value) {
    return (values, index, out) -> {
      MapData map = values.getMap(index);
      ArrayData keys = map.keyArray();
      ArrayData entries = map.valueArray();
      out.writeMapStart();
      out.setItemCount(map.numElements());
      for (int i = 0; i < map.numElements(); i++) {
        out.startItem();
        out.writeBytes(keys.getUTF8String(i).makeValid().getBytes());
        value.write(entries, i, out);
      }
      out.writeMapEnd();
    };
  }

  private static void check(boolean fits, DataType type, Schema schema) {
    if (!fits) {
      throw new IllegalArgumentException("Spark's " + type.sql() + " is not Avro's " + schema);
    }
  }
}
