package streamjoin;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.BindReferences;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.package$;
import org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructType;

/** Steps of join.py that need Scala or Catalyst classes. */
public final class ProcessorJoin {
  private ProcessorJoin() {}

  /** Columns of left, of right (except in a left semi join) and `dead_letter`. */
  public static Dataset<Row> join(Dataset<Row> rows, String[] keys, JoinRules rules) {
    Column[] columns = Arrays.stream(keys).map(rows::col).toArray(Column[]::new);
    return rows.groupBy(columns)
        .as(InternalRows.encoder(rules.keySchema), InternalRows.encoder(rows.schema()))
        .transformWithState(
            rules.joinsAtOnce() ? new TableJoin(rules) : new StreamJoin(rules),
            TimeMode.EventTime(),
            OutputMode.Update(),
            InternalRows.encoder(rules.outputSchema()))
        .toDF();
  }

  /** The checksum of the sources that this class was built from. */
  public static String sourcesChecksum() throws IOException {
    try (InputStream content =
        ProcessorJoin.class.getResourceAsStream("/META-INF/streamjoin-sources.sha256")) {
      return content == null ? "" : new String(content.readAllBytes(), StandardCharsets.UTF_8);
    }
  }

  /** The only column of `dataset`, bound to the columns of its input. */
  public static Expression bound(Dataset<Row> dataset) {
    Project project = (Project) optimized(dataset);
    Expression column = (Expression) project.projectList().iterator().next();
    return BindReferences.bindReference(
        column, package$.MODULE$.AttributeSeq(project.child().output()), false);
  }

  /** The type as which Spark compares the two sides of the equality that `dataset` selects. */
  public static String comparedType(Dataset<Row> dataset) {
    Project project = (Project) analyzed(dataset);
    Expression equality = ((Expression) project.projectList().iterator().next()).children().iterator().next();
    DataType type = equality.children().iterator().next().dataType();
    return type.sql();
  }

  /**
   * A column as Spark compares it in a join: all NaN are one value, and -0.0 is 0.0. The result has
   * no metadata: the metadata would mark the column as the watermark.
   */
  public static Column normalized(Dataset<Row> dataset, String name) {
    Expression column = ExpressionUtils.expression(dataset.col(name));
    Expression normalized = NormalizeFloatingNumbers$.MODULE$.normalize(column);
    return ExpressionUtils.column(normalized).as(name, Metadata.empty());
  }

  private static LogicalPlan optimized(Dataset<Row> dataset) {
    return ((org.apache.spark.sql.classic.Dataset<Row>) dataset).queryExecution().optimizedPlan();
  }

  private static LogicalPlan analyzed(Dataset<Row> dataset) {
    return ((org.apache.spark.sql.classic.Dataset<Row>) dataset).queryExecution().analyzed();
  }
}
