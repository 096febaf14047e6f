package streamjoin;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.avro.AvroRuntimeException;
import org.apache.avro.NameValidator;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.EncoderFactory;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.*;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads Avro values of a writer schema into the columns of a reader schema, by Avro's schema
 * resolution. Named types match by their names without namespace.
 *
 * <p>Avro's GenericDatumReader is not used: it allocates the memory that a corrupt length claims,
 * resolves timestamp-millis as timestamp-micros, and returns objects that Spark's rows cannot
 * contain.
 */
final class AvroReader implements ValueReader {
  private static final Set<String> CHECKED =
      Set.of("decimal", "date", "timestamp-millis", "timestamp-micros");
  private static final Map<Schema.Type, Set<Schema.Type>> PROMOTIONS =
      Map.of(
          Schema.Type.INT, Set.of(Schema.Type.LONG, Schema.Type.FLOAT, Schema.Type.DOUBLE),
          Schema.Type.LONG, Set.of(Schema.Type.FLOAT, Schema.Type.DOUBLE),
          Schema.Type.FLOAT, Set.of(Schema.Type.DOUBLE),
          Schema.Type.STRING, Set.of(Schema.Type.BYTES),
          Schema.Type.BYTES, Set.of(Schema.Type.STRING));

  private final RecordReader record;

  private AvroReader(RecordReader record) {
    this.record = record;
  }

  static AvroReader of(JsonNode prepared, StructType columns) {
    Schema writer = parsed(prepared.get("writer"));
    Schema reader = parsed(prepared.get("reader"));
    return new AvroReader(RecordReader.of(writer, reader, columns, prepared.get("micros")));
  }

  private static Schema parsed(JsonNode schema) {
    Schema.Parser parser = new Schema.Parser(NameValidator.NO_VALIDATION);
    return parser.setValidateDefaults(false).parse(schema.toString());
  }

  @Override
  public InternalRow read(byte[] value, int start) {
    AvroInput in = new AvroInput(value, start);
    InternalRow row;
    try {
      row = record.read(in);
    } catch (UnreadableException error) {
      throw new UnreadableException("not Avro of that schema (" + error.getMessage() + ")");
    } catch (StackOverflowError error) {
      throw new UnreadableException("not Avro of that schema (too many nested records)");
    }
    if (in.remaining() > 0) {
      throw new UnreadableException(in.remaining() + " bytes remain after the value");
    }
    return row;
  }

  private interface FieldReader {
    Object read(AvroInput in);
  }

  /** Reads the fields of a record in the order of the writer schema. */
  private static final class RecordReader implements FieldReader {
    private final Schema writer;
    private final FieldReader[] readers;
    private final int[] indexes;
    private final Object[] defaults;

    RecordReader(Schema writer, int columns) {
      this.writer = writer;
      int fields = writer.getFields().size();
      readers = new FieldReader[fields];
      indexes = new int[fields];
      defaults = new Object[columns];
    }

    static RecordReader of(Schema writer, Schema reader, StructType type, JsonNode micros) {
      RecordReader record = new RecordReader(writer, type.length());
      for (Schema.Field field : reader.getFields()) {
        int index = type.fieldIndex(field.name());
        record.add(field, index, type.apply(index).dataType(), micros.path(field.name()));
      }
      return record;
    }

    private void add(Schema.Field field, int index, DataType type, JsonNode micros) {
      Schema.Field source = writer.getField(field.name());
      for (String alias : field.aliases()) {
        source = source == null ? writer.getField(alias) : source;
      }
      if (source == null) {
        AvroInput in = new AvroInput(defaultValue(field), 0);
        defaults[index] = reader(field.schema(), field, type, micros).read(in);
      } else {
        readers[source.pos()] = reader(source.schema(), field, type, micros);
        indexes[source.pos()] = index;
      }
    }

    @Override
    public InternalRow read(AvroInput in) {
      Object[] row = defaults.clone();
      List<Schema.Field> fields = writer.getFields();
      for (int i = 0; i < readers.length; i++) {
        if (readers[i] == null) {
          in.skip(fields.get(i).schema());
        } else {
          row[indexes[i]] = readers[i].read(in);
        }
      }
      return new GenericInternalRow(row);
    }
  }

  /**
   * `micros`: microseconds per unit of a timestamp; of a record, those of its fields. Missing: the
   * field is and has no timestamp.
   */
  private static FieldReader reader(
      Schema writer, Schema.Field field, DataType type, JsonNode micros) {
    FieldReader read = resolved(writer, field.schema(), type, field.name(), micros);
    long unit = micros.asLong();
    return unit == 0 ? read : in -> EpochMicros.of((Long) read.read(in), unit);
  }

  private static byte[] defaultValue(Schema.Field field) {
    if (!field.hasDefaultValue()) {
      throw new IncompatibleException(
          "field " + field.name() + ": is missing and has no default");
    }
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    BinaryEncoder out = EncoderFactory.get().binaryEncoder(bytes, null);
    try {
      Object value = GenericData.get().getDefaultValue(field);
      new GenericDatumWriter<>(field.schema()).write(value, out);
      out.flush();
    } catch (IOException | AvroRuntimeException error) {
      throw new IncompatibleException("field " + field.name() + ": has an invalid default");
    }
    return bytes.toByteArray();
  }

  private static FieldReader resolved(
      Schema writer, Schema reader, DataType type, String field, JsonNode micros) {
    if (writer.isUnion()) {
      List<FieldReader> branches = new ArrayList<>();
      for (Schema branch : writer.getTypes()) {
        branches.add(resolved(branch, reader, type, field, micros));
      }
      return in -> branches.get(in.readIndex(branches.size())).read(in);
    }
    Schema read = matching(writer, reader);
    if (read == null) {
      return refusing(
          "field " + field + ": " + described(writer) + " cannot be read as " + described(reader));
    }
    switch (read.getType()) {
      case NULL:
        return in -> null;
      case BOOLEAN:
        return AvroInput::readBoolean;
      case STRING:
        return AvroInput::readText;
      case ENUM:
        return symbol(writer, read, field);
      case ARRAY:
        return array(
            resolved(
                writer.getElementType(),
                read.getElementType(),
                ((ArrayType) type).elementType(),
                field,
                micros));
      case MAP:
        return map(
            resolved(
                writer.getValueType(),
                read.getValueType(),
                ((MapType) type).valueType(),
                field,
                micros));
      case RECORD:
        return record(writer, read, (StructType) type, micros);
      case BYTES:
      case FIXED:
        return bytes(writer, type);
      default:
        return number(writer.getType(), type);
    }
  }

  /** `reader`, or its branch, that can read values of `writer`. Null: none can. */
  private static Schema matching(Schema writer, Schema reader) {
    for (Schema branch : reader.isUnion() ? reader.getTypes() : List.of(reader)) {
      if (matches(writer, branch)) {
        return branch;
      }
    }
    return null;
  }

  private static boolean matches(Schema writer, Schema reader) {
    Schema.Type written = writer.getType();
    if (written == Schema.Type.UNION || reader.isUnion()) {
      return true; // depends on the value
    }
    if (written != reader.getType()) {
      boolean promoted = PROMOTIONS.getOrDefault(written, Set.of()).contains(reader.getType());
      return promoted && meansTheSame(writer, reader);
    }
    switch (written) {
      case ARRAY:
        return matches(writer.getElementType(), reader.getElementType());
      case MAP:
        return matches(writer.getValueType(), reader.getValueType());
      case FIXED:
        return writer.getFixedSize() == reader.getFixedSize()
            && isNamed(writer, reader)
            && meansTheSame(writer, reader);
      case ENUM:
      case RECORD:
        return isNamed(writer, reader);
      default:
        return meansTheSame(writer, reader);
    }
  }

  private static boolean isNamed(Schema writer, Schema reader) {
    return writer.getName().equals(reader.getName())
        || reader.getAliases().stream().anyMatch(alias -> shortName(alias).equals(writer.getName()));
  }

  private static String shortName(String name) {
    return name.substring(name.lastIndexOf('.') + 1);
  }

  /** Whether the logical types agree: Avro itself compares only the underlying types. */
  private static boolean meansTheSame(Schema writer, Schema reader) {
    String written = logical(writer);
    String read = logical(reader);
    if (written.equals("decimal") && read.equals("decimal")) {
      return number(writer, "scale") == number(reader, "scale")
          && number(writer, "precision") <= number(reader, "precision");
    }
    return written.equals(read) || !(CHECKED.contains(written) || CHECKED.contains(read));
  }

  private static String logical(Schema schema) {
    String name = schema.getProp("logicalType");
    return name == null ? "" : name;
  }

  private static int number(Schema schema, String property) {
    Object value = schema.getObjectProp(property);
    return value == null ? 0 : ((Number) value).intValue();
  }

  private static FieldReader refusing(String message) {
    return in -> {
      throw new IncompatibleException(message);
    };
  }

  private static String described(Schema schema) {
    if (!schema.isUnion()) {
      return logical(schema).isEmpty() ? schema.getType().getName() : logical(schema);
    }
    List<Schema> others = new ArrayList<>(schema.getTypes());
    others.removeIf(branch -> branch.getType() == Schema.Type.NULL);
    return others.size() == 1 ? described(others.get(0)) : "union";
  }

  private static FieldReader number(Schema.Type written, DataType type) {
    if (written == Schema.Type.FLOAT) {
      return type instanceof FloatType
          ? AvroInput::readFloat
          : in -> (double) in.readFloat();
    }
    if (written == Schema.Type.DOUBLE) {
      return AvroInput::readDouble;
    }
    if (type instanceof IntegerType || type instanceof DateType) {
      return AvroInput::readInt;
    }
    FieldReader whole =
        written == Schema.Type.INT ? in -> (long) in.readInt() : AvroInput::readLong;
    if (type instanceof FloatType) {
      return in -> (float) (double) (long) whole.read(in);
    }
    if (type instanceof DoubleType) {
      return in -> (double) (long) whole.read(in);
    }
    return whole;
  }

  private static FieldReader bytes(Schema writer, DataType type) {
    FieldReader read;
    if (writer.getType() == Schema.Type.FIXED) {
      int size = writer.getFixedSize();
      read = in -> in.readFixed(size);
    } else if (writer.getType() == Schema.Type.STRING) {
      read = in -> in.readText().getBytes();
    } else {
      read = AvroInput::readBytes;
    }
    if (!(type instanceof DecimalType)) {
      return read;
    }
    DecimalType decimal = (DecimalType) type;
    return in -> decimal((byte[]) read.read(in), decimal.precision(), decimal.scale());
  }

  private static Decimal decimal(byte[] bytes, int precision, int scale) {
    BigInteger unscaled = bytes.length == 0 ? BigInteger.ZERO : new BigInteger(bytes);
    BigDecimal value = new BigDecimal(unscaled, scale);
    if (value.precision() > precision) {
      throw new UnreadableException("a decimal has more than " + precision + " digits");
    }
    return Decimal.apply(value, precision, scale);
  }

  private static FieldReader symbol(Schema writer, Schema reader, String field) {
    UTF8String[] symbols = new UTF8String[writer.getEnumSymbols().size()];
    for (int i = 0; i < symbols.length; i++) {
      String written = writer.getEnumSymbols().get(i);
      String read = reader.hasEnumSymbol(written) ? written : reader.getEnumDefault();
      symbols[i] = read == null ? null : UTF8String.fromString(read);
    }
    return in -> {
      int index = in.readIndex(symbols.length);
      if (symbols[index] == null) {
        throw new IncompatibleException(
            "field " + field + ": the enum has no " + writer.getEnumSymbols().get(index));
      }
      return symbols[index];
    };
  }

  private static FieldReader array(FieldReader item) {
    return in -> {
      List<Object> items = new ArrayList<>();
      for (long count = in.readBlock(); count > 0; count = in.readBlock()) {
        for (long i = 0; i < count; i++) {
          items.add(item.read(in));
        }
      }
      return new GenericArrayData(items.toArray());
    };
  }

  private static FieldReader map(FieldReader value) {
    return in -> {
      Map<Object, Object> entries = new LinkedHashMap<>();
      for (long count = in.readBlock(); count > 0; count = in.readBlock()) {
        for (long i = 0; i < count; i++) {
          entries.put(in.readText(), value.read(in));
        }
      }
      return new ArrayBasedMapData(
          new GenericArrayData(entries.keySet().toArray()),
          new GenericArrayData(entries.values().toArray()));
    };
  }

  private static FieldReader record(
      Schema writer, Schema reader, StructType type, JsonNode micros) {
    try {
      return RecordReader.of(writer, reader, type, micros);
    } catch (IncompatibleException error) {
      return refusing(error.getMessage());
    }
  }
}
