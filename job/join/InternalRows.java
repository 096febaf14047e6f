package streamjoin;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.Analyzer;
import org.apache.spark.sql.catalyst.analysis.GetColumnByOrdinal;
import org.apache.spark.sql.catalyst.encoders.AgnosticEncoder;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.catalyst.encoders.RowEncoder;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * An encoder whose objects are Spark's internal rows.
 *
 * <p>Encoders.row converts each value to an external value and back. The conversion takes a fifth
 * of the join's CPU time and loses the order of a map's entries. This encoder converts nothing. A
 * decoded row is valid until the next row is decoded.
 */
public final class InternalRows {
  private InternalRows() {}

  public static Encoder<InternalRow> encoder(StructType schema) {
    List<Expression> read = new ArrayList<>();
    for (int i = 0; i < schema.length(); i++) {
      read.add(Literal.create(schema.apply(i).name(), DataTypes.StringType));
      read.add(new GetColumnByOrdinal(i, schema.apply(i).dataType()));
    }
    // Spark copies a struct that an encoder decodes field by field, but not an object.
    Expression decoded =
        new StaticInvoke(
            InternalRows.class,
            new ObjectType(InternalRow.class),
            "unchanged",
            seq(List.of(new CreateNamedStruct(seq(read)))),
            seq(List.of()),
            true,
            true,
            true,
            Option.empty());
    return new ExpressionEncoder<>(description(schema), written(schema), decoded);
  }

  /** An encoder for state that SlotStore reads and writes. Spark uses only its schema. */
  static Encoder<InternalRow> schemaOnly(StructType schema) {
    return new SchemaOnly(schema);
  }

  /**
   * An encoder that is never resolved. Otherwise Spark's analyzer would run in each task for each
   * list of the state, before the first row of an interval.
   */
  private static final class SchemaOnly extends ExpressionEncoder<InternalRow> {
    SchemaOnly(StructType schema) {
      super(
          description(schema),
          written(schema),
          Literal.create(null, new ObjectType(InternalRow.class)));
    }

    @Override
    public ExpressionEncoder<InternalRow> resolveAndBind(
        Seq<Attribute> attributes, Analyzer analyzer) {
      return this;
    }
  }

  /** Spark's description of the encoded objects. Only its schema is used. */
  @SuppressWarnings("unchecked")
  private static AgnosticEncoder<InternalRow> description(StructType schema) {
    AgnosticEncoder<Row> rows = RowEncoder.encoderFor(schema);
    return (AgnosticEncoder<InternalRow>) (AgnosticEncoder<?>) rows;
  }

  private static CreateNamedStruct written(StructType schema) {
    List<Expression> fields = new ArrayList<>();
    Expression row = new BoundReference(0, schema, false);
    for (int i = 0; i < schema.length(); i++) {
      String name = schema.apply(i).name();
      fields.add(Literal.create(name, DataTypes.StringType));
      fields.add(new GetStructField(row, i, Option.apply(name)));
    }
    return new CreateNamedStruct(seq(fields));
  }

  /** Called by the decoding expression. */
  public static InternalRow unchanged(InternalRow row) {
    return row;
  }

  static <T> Seq<T> seq(List<? extends T> list) {
    return CollectionConverters.<T>asScala(new ArrayList<T>(list).iterator()).toSeq();
  }
}
