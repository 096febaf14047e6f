package streamjoin;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.*;
import org.apache.spark.unsafe.types.UTF8String;
import org.sparkproject.spark_core.protobuf.ByteString;
import org.sparkproject.spark_core.protobuf.DescriptorProtos.FileDescriptorProto;
import org.sparkproject.spark_core.protobuf.DescriptorProtos.FileDescriptorSet;
import org.sparkproject.spark_core.protobuf.Descriptors.Descriptor;
import org.sparkproject.spark_core.protobuf.Descriptors.DescriptorValidationException;
import org.sparkproject.spark_core.protobuf.Descriptors.EnumValueDescriptor;
import org.sparkproject.spark_core.protobuf.Descriptors.FieldDescriptor;
import org.sparkproject.spark_core.protobuf.Descriptors.FileDescriptor;
import org.sparkproject.spark_core.protobuf.DynamicMessage;
import org.sparkproject.spark_core.protobuf.InvalidProtocolBufferException;
import org.sparkproject.spark_core.protobuf.Message;

/**
 * Reads Protobuf values with the message of the job's schema: fields match by their numbers. Uses
 * the copy of Google's library that Spark contains.
 */
final class ProtobufReader implements ValueReader {
  private static final BigInteger TWO_TO_64 = BigInteger.ONE.shiftLeft(Long.SIZE);
  private static final String TRUNCATED = "the message indexes after the schema id are truncated";

  private final Descriptor message;
  private final FieldReader[] readers;
  /**
   * Reason why a message cannot be read, by its indexes, e.g. "0 1". Empty text: it can be read.
   */
  private final Map<String, String> refusals = new HashMap<>();

  private ProtobufReader(Descriptor message, JsonNode prepared, StructType columns) {
    this.message = message;
    readers = new FieldReader[columns.length()];
    for (int i = 0; i < readers.length; i++) {
      StructField column = columns.apply(i);
      long micros = prepared.get("micros").path(column.name()).asLong();
      readers[i] = field(message.findFieldByName(column.name()), column.dataType(), micros);
    }
    for (Map.Entry<String, JsonNode> each : prepared.get("refusals").properties()) {
      refusals.put(each.getKey(), each.getValue().asText());
    }
  }

  static ProtobufReader of(JsonNode prepared, StructType columns) {
    try {
      Descriptor message =
          found(FileDescriptorSet.parseFrom(prepared.get("files").binaryValue()));
      return new ProtobufReader(message, prepared, columns);
    } catch (IOException | DescriptorValidationException error) {
      throw new IncompatibleException("cannot be read as Protobuf: " + error.getMessage());
    }
  }

  private static Descriptor found(FileDescriptorSet files)
      throws DescriptorValidationException {
    Map<String, FileDescriptor> built = new HashMap<>();
    for (FileDescriptorProto file : files.getFileList()) { // a file follows its imports
      FileDescriptor[] imports =
          file.getDependencyList().stream().map(built::get).toArray(FileDescriptor[]::new);
      built.put(file.getName(), FileDescriptor.buildFrom(file, imports));
    }
    FileDescriptor file = built.get(files.getFile(files.getFileCount() - 1).getName());
    return file.getMessageTypes().get(0);
  }

  @Override
  public InternalRow read(byte[] value, int start) {
    Indexes indexes = new Indexes(value, start);
    String refusal = refusals.get(indexes.path);
    if (refusal == null) {
      throw new IncompatibleException("has no message [" + indexes.path.replace(" ", ", ") + "]");
    }
    if (!refusal.isEmpty()) {
      throw new IncompatibleException(refusal);
    }
    Message read;
    try {
      read =
          DynamicMessage.newBuilder(message)
              .mergeFrom(value, indexes.end, value.length - indexes.end)
              .buildPartial();
    } catch (InvalidProtocolBufferException error) {
      throw new UnreadableException("not Protobuf of that schema: " + error.getMessage());
    }
    return row(read, readers);
  }

  /** Indexes of the message in its file, as zigzag varints: the count, then each index. */
  private static final class Indexes {
    final String path;
    int end;

    Indexes(byte[] value, int start) {
      end = start;
      long count = varint(value);
      if (count == 0) {
        path = "0";
        return;
      }
      if (count < 0) {
        throw new UnreadableException("the number of message indexes is negative");
      }
      if (count > value.length) {
        throw new UnreadableException(TRUNCATED);
      }
      List<String> indexes = new ArrayList<>();
      for (long i = 0; i < count; i++) {
        indexes.add(Long.toString(varint(value)));
      }
      path = String.join(" ", indexes);
    }

    private long varint(byte[] value) {
      long read = 0;
      for (int shift = 0; shift < Long.SIZE && end < value.length; shift += 7) {
        byte next = value[end++];
        read |= (next & 0x7FL) << shift;
        if (next >= 0) {
          return read >>> 1 ^ -(read & 1);
        }
      }
      throw new UnreadableException(TRUNCATED);
    }
  }

  private interface FieldReader {
    Object read(Message message);
  }

  private interface Converter {
    Object convert(Object value);
  }

  private static InternalRow row(Message message, FieldReader[] readers) {
    Object[] row = new Object[readers.length];
    for (int i = 0; i < readers.length; i++) {
      row[i] = readers[i].read(message);
    }
    return new GenericInternalRow(row);
  }

  /** `micros`: microseconds per unit of a timestamp. 0: the field is not a timestamp. */
  private static FieldReader field(FieldDescriptor field, DataType type, long micros) {
    if (field.isMapField()) {
      return map(field, ((MapType) type).valueType());
    }
    if (field.isRepeated()) {
      Converter item = converter(field, ((ArrayType) type).elementType());
      return message -> {
        Object[] items = ((List<?>) message.getField(field)).toArray();
        for (int i = 0; i < items.length; i++) {
          items[i] = item.convert(items[i]);
        }
        return new GenericArrayData(items);
      };
    }
    Converter single = converter(field, type);
    Converter value =
        micros == 0 ? single : read -> EpochMicros.of((Long) single.convert(read), micros);
    if (!field.hasPresence()) {
      return message -> value.convert(message.getField(field));
    }
    return message -> message.hasField(field) ? value.convert(message.getField(field)) : null;
  }

  private static FieldReader map(FieldDescriptor field, DataType type) {
    FieldDescriptor key = field.getMessageType().findFieldByName("key");
    FieldDescriptor value = field.getMessageType().findFieldByName("value");
    Converter converter = converter(value, type);
    return message -> {
      Map<Object, Object> entries = new LinkedHashMap<>();
      for (Object entry : (List<?>) message.getField(field)) {
        Message read = (Message) entry;
        entries.put(text(read.getField(key)), converter.convert(read.getField(value)));
      }
      return new ArrayBasedMapData(
          new GenericArrayData(entries.keySet().toArray()),
          new GenericArrayData(entries.values().toArray()));
    };
  }

  private static Converter converter(FieldDescriptor field, DataType type) {
    switch (field.getType()) {
      case BOOL:
        return value -> value;
      case STRING:
        return ProtobufReader::text;
      case BYTES:
        return value -> ((ByteString) value).toByteArray();
      case ENUM:
        return symbol(field);
      case MESSAGE:
      case GROUP:
        return message(field.getMessageType(), type);
      case UINT64:
      case FIXED64:
        return value -> unsigned((Long) value);
      case UINT32:
      case FIXED32:
        return value -> Integer.toUnsignedLong((Integer) value);
      default:
        return number(type);
    }
  }

  private static Converter number(DataType type) {
    if (type instanceof DoubleType) {
      return value -> ((Number) value).doubleValue();
    }
    return type instanceof LongType ? value -> ((Number) value).longValue() : value -> value;
  }

  private static UTF8String text(Object value) {
    return UTF8String.fromString((String) value);
  }

  private static Decimal unsigned(long value) {
    BigInteger number = BigInteger.valueOf(value);
    number = value < 0 ? number.add(TWO_TO_64) : number;
    return Decimal.apply(new BigDecimal(number), 20, 0);
  }

  /** As in Protobuf's JSON, a number without a name in this schema stays a number. */
  private static Converter symbol(FieldDescriptor field) {
    Map<Integer, UTF8String> names = new HashMap<>();
    for (EnumValueDescriptor each : field.getEnumType().getValues()) {
      names.put(each.getNumber(), UTF8String.fromString(each.getName()));
    }
    return value -> {
      int number = ((EnumValueDescriptor) value).getNumber();
      UTF8String name = names.get(number);
      return name == null ? UTF8String.fromString(Integer.toString(number)) : name;
    };
  }

  private static Converter message(Descriptor message, DataType type) {
    if (message.getFullName().equals("google.protobuf.Timestamp")) {
      FieldDescriptor seconds = message.findFieldByName("seconds");
      FieldDescriptor nanos = message.findFieldByName("nanos");
      return value -> {
        Message at = (Message) value;
        return EpochMicros.ofSeconds((Long) at.getField(seconds), (Integer) at.getField(nanos));
      };
    }
    if (!(type instanceof StructType)) { // a wrapper, such as Int64Value
      FieldDescriptor inner = message.findFieldByName("value");
      Converter wrapped = converter(inner, type);
      return value -> wrapped.convert(((Message) value).getField(inner));
    }
    StructType struct = (StructType) type;
    FieldReader[] readers = new FieldReader[struct.length()];
    for (int i = 0; i < readers.length; i++) {
      readers[i] = field(message.getFields().get(i), struct.apply(i).dataType(), 0);
    }
    return value -> row((Message) value, readers);
  }
}
