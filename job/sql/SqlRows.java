package streamjoin;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.TryEval;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection$;
import org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Runs steps of selectExpr on rows, as a query of the job does. The rows that a program gives are
 * kept, so that a program over pairs of them can read them.
 */
final class SqlRows {
  /** Steps over rows from the caller, or over pairs of rows of two other programs. */
  private static final class Program {
    final StructType input;
    final Program left;
    final Program right;
    final LogicalPlan plan;
    final List<Attribute> output;
    final List<Column> returned = new ArrayList<>();
    private List<UnsafeProjection> steps;
    private boolean isGenerated;
    private int rows = 0;

    Program(StructType input, Program left, Program right, LogicalPlan plan, SparkSql spark) {
      this.input = input;
      this.left = left;
      this.right = right;
      this.plan = plan;
      // The job runs generated code. Without it, Spark evaluates more of an expression that can
      // fail: concat(null, failing) fails only then.
      isGenerated = SparkSql.expressions(plan).stream().anyMatch(Program::containsTryEval);
      steps = isGenerated ? spark.withGeneratedCode(() -> steps(plan)) : steps(plan);
      output = CollectionConverters.asJava(plan.output());
    }

    private static List<UnsafeProjection> steps(LogicalPlan plan) {
      if (plan instanceof Project project) {
        List<UnsafeProjection> steps = steps(project.child());
        steps.add(
            UnsafeProjection$.MODULE$.create(
                SparkSql.expressionsOf(project.projectList()), project.child().output()));
        return steps;
      }
      return new ArrayList<>();
    }

    private static boolean containsTryEval(Expression tree) {
      return tree instanceof TryEval
          || SparkSql.children(tree).stream().anyMatch(Program::containsTryEval);
    }

    /** Generates code once the program has run on so many rows that the time pays off. */
    void count(SparkSql spark, int more) {
      rows += more;
      if (!isGenerated && rows > INTERPRETED) {
        isGenerated = true;
        steps = spark.withGeneratedCode(() -> steps(plan));
      }
    }

    boolean isReturned(int index) {
      return returned.stream().anyMatch(column -> column.index() == index);
    }

    InternalRow evaluated(InternalRow row) {
      InternalRow result = row;
      for (UnsafeProjection step : steps) {
        result = step.apply(result);
      }
      return result.copy();
    }
  }

  /** A column of a result that is returned. */
  private record Column(int index, DataType type, UnsafeProjection encoding) {}

  /** Rows on which a program runs without generated code. */
  private static final int INTERPRETED = 5_000;

  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Base64.Encoder BASE64 = Base64.getEncoder();

  private final SparkSql spark;
  private final Map<Integer, Program> programs = new LatestMap<>();
  private final Map<Integer, List<InternalRow>> stores = new HashMap<>();

  SqlRows(SparkSql spark) {
    this.spark = spark;
  }

  /** Creates the program with the number of the question. */
  ObjectNode open(JsonNode question) {
    Program left = null;
    Program right = null;
    StructType input;
    if (question.has("pairs")) {
      left = programs.get(question.get("pairs").get(0).asInt());
      right = programs.get(question.get("pairs").get(1).asInt());
      input = pairs(left, right);
    } else {
      input = StructType.fromDDL(question.get("columns").asText());
    }
    LogicalPlan plan = SparkSql.stream(input);
    for (JsonNode step : question.get("steps")) {
      List<Expression> columns = new ArrayList<>();
      step.forEach(text -> columns.add(SparkSql.parsed(text.asText())));
      plan = spark.projected(columns, plan);
    }
    Program program = new Program(input, left, right, spark.optimized(plan), spark);
    question.get("returns").forEach(name -> program.returned.add(column(program, name, false)));
    question.get("encodes").forEach(name -> program.returned.add(column(program, name, true)));
    programs.put(question.get("program").asInt(), program);
    return JSON.createObjectNode();
  }

  /** Both rows, with other names for the columns that are returned, which both may have. */
  private static StructType pairs(Program left, Program right) {
    StructType input = new StructType();
    for (Program side : List.of(left, right)) {
      for (int index = 0; index < side.output.size(); index++) {
        Attribute column = side.output.get(index);
        String name = side.isReturned(index) ? "returned " + input.size() : column.name();
        input = input.add(name, column.dataType(), true);
      }
    }
    return input;
  }

  private static Column column(Program program, JsonNode name, boolean isEncoded) {
    List<Attribute> output = program.output;
    for (int index = 0; index < output.size(); index++) {
      Attribute column = output.get(index);
      if (column.name().equals(name.asText())) {
        return new Column(
            index, column.dataType(), isEncoded ? encoding(column, program.output) : null);
      }
    }
    throw new IllegalArgumentException("no column " + name);
  }

  /** Equal values have equal bytes, as in a join key. */
  private static UnsafeProjection encoding(Attribute column, List<Attribute> output) {
    Expression normalized = NormalizeFloatingNumbers$.MODULE$.normalize(column);
    return UnsafeProjection$.MODULE$.create(
        SparkSql.expressionsOf(List.of(normalized)), SparkSql.attributes(output));
  }

  /**
   * The results of rows, or of pairs of rows in two stores; `is_closed` if the program is no longer
   * one of the latest.
   */
  ObjectNode run(JsonNode question) throws IOException {
    Program program = programs.get(question.get("program").asInt());
    ObjectNode answer = JSON.createObjectNode();
    if (program == null) {
      return answer.put("is_closed", true);
    }
    program.count(spark, question.get("rows").size());
    ArrayNode results = answer.putArray("rows");
    for (JsonNode row : question.get("rows")) {
      boolean isPair = program.left != null;
      InternalRow input =
          isPair ? pair(row, question.get("stores"), program) : read(row, program.input);
      InternalRow result = program.evaluated(input);
      if (!isPair) {
        stores.computeIfAbsent(question.get("keep").asInt(), id -> new ArrayList<>()).add(result);
      }
      ArrayNode values = results.addArray();
      for (Column column : program.returned) {
        write(result, column, values);
      }
    }
    return answer;
  }

  ObjectNode drop(JsonNode question) {
    stores.remove(question.get("store").asInt());
    return JSON.createObjectNode();
  }

  private InternalRow pair(JsonNode numbers, JsonNode of, Program program) {
    return new JoinedRow(
        row(numbers.get(0), of.get(0), program.left),
        row(numbers.get(1), of.get(1), program.right));
  }

  /** A row in a store; all null for null. */
  private InternalRow row(JsonNode number, JsonNode store, Program program) {
    return number.isNull()
        ? new GenericInternalRow(program.output.size())
        : stores.get(store.asInt()).get(number.asInt());
  }

  private static InternalRow read(JsonNode values, StructType type) throws IOException {
    Object[] row = new Object[type.size()];
    for (int index = 0; index < row.length; index++) {
      row[index] = read(values.get(index), type.apply(index).dataType());
    }
    return new GenericInternalRow(row);
  }

  private static Object read(JsonNode value, DataType type) throws IOException {
    if (value.isNull()) {
      return null;
    }
    if (type instanceof StringType) {
      return UTF8String.fromString(value.asText());
    }
    if (type instanceof BinaryType) {
      return value.binaryValue();
    }
    if (type instanceof IntegerType) {
      return value.asInt();
    }
    if (type instanceof LongType || type instanceof TimestampType) {
      return value.asLong();
    }
    if (type instanceof StructType struct) {
      return read(value, struct);
    }
    if (type instanceof ArrayType array) {
      Object[] items = new Object[value.size()];
      for (int index = 0; index < items.length; index++) {
        items[index] = read(value.get(index), array.elementType());
      }
      ArrayData read = new GenericArrayData(items);
      return read;
    }
    throw new IllegalArgumentException("no value of type " + type);
  }

  private static void write(InternalRow row, Column column, ArrayNode values) {
    if (row.isNullAt(column.index())) {
      values.addNull();
    } else if (column.encoding() != null) {
      values.add(BASE64.encodeToString(column.encoding().apply(row).getBytes()));
    } else if (column.type() instanceof BooleanType) {
      values.add(row.getBoolean(column.index()));
    } else if (column.type() instanceof LongType) {
      values.add(row.getLong(column.index()));
    } else {
      values.add(row.getUTF8String(column.index()).toString());
    }
  }
}
