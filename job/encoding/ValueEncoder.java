package streamjoin;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.ObjectType;

/**
 * Encodes rows of one type in Confluent's wire format: a byte 0, the id of the schema, the value.
 */
public abstract class ValueEncoder implements Serializable {
  static final int HEADER_BYTES = 5;

  /** Called by the expression in `encoded`. */
  public abstract byte[] encode(InternalRow row);

  /** `row`, a struct of the encoder's type, as a column of bytes. */
  public final Column encoded(Column row) {
    return ExpressionUtils.column(
        new Invoke(
            Literal.fromObject(this, new ObjectType(ValueEncoder.class)),
            "encode",
            DataTypes.BinaryType,
            InternalRows.seq(List.of(ExpressionUtils.expression(row))),
            InternalRows.seq(List.of()),
            true,
            true,
            true));
  }
}
