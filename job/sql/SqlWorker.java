package streamjoin;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Answers questions about the SQL of a spec: a JSON document each, in a line of standard input or as
 * argument of `answer`. job/sql/client.py describes questions and answers.
 */
public final class SqlWorker {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final SparkSql SPARK = new SparkSql();
  private static final Map<String, LogicalPlan> STREAMS = new HashMap<>();

  private SqlWorker() {}

  public static void main(String[] arguments) throws Exception {
    PrintStream output = System.out;
    System.setOut(System.err); // a library must not write between two answers
    BufferedReader questions =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = questions.readLine(); line != null; line = questions.readLine()) {
      output.write((answer(line) + "\n").getBytes(StandardCharsets.UTF_8));
      output.flush();
    }
  }

  /** Never throws; an error is a part of the answer. */
  public static String answer(String question) {
    return SPARK.withSettings(() -> answered(question)).toString();
  }

  private static ObjectNode answered(String text) {
    try {
      JsonNode question = JSON.readTree(text);
      return switch (question.get("kind").asText()) {
        case "names" -> names(question);
        case "expression" -> expression(question);
        case "same" -> same(question);
        case "columns" -> columns(question);
        case "functions" -> functions();
        default -> throw new IllegalArgumentException("no kind of question: " + text);
      };
    } catch (AllowedSql.Refusal refusal) {
      return JSON.createObjectNode().put("refused", refusal.reason).put("what", refusal.what);
    } catch (StackOverflowError error) {
      return JSON.createObjectNode().put("refused", "DEPTH").put("what", "");
    } catch (Exception error) {
      return failure(error);
    }
  }

  /** The condition, parameters and message of Spark's error. */
  private static ObjectNode failure(Throwable error) {
    Throwable cause = error;
    while (!(cause instanceof SparkThrowable) && cause.getCause() != null) {
      cause = cause.getCause();
    }
    ObjectNode answer = JSON.createObjectNode().put("error", String.valueOf(cause.getMessage()));
    answer.put("class", cause.getClass().getName());
    if (cause instanceof SparkThrowable spark) {
      answer.put("condition", spark.getCondition());
      ObjectNode parameters = answer.putObject("parameters");
      spark.getMessageParameters().forEach(parameters::put);
    }
    return answer;
  }

  /** Throws Refusal before the analysis, which would read the tables of a subquery. */
  private static Expression parsed(String text) {
    Expression tree = SparkSql.parsed(text);
    AllowedSql.checkParsed(tree);
    return tree;
  }

  private static ObjectNode names(JsonNode question) {
    String text = SpecText.withoutComments(question.get("text").asText());
    Expression tree = parsed(text);
    ObjectNode answer = JSON.createObjectNode().put("text", text);
    ArrayNode names = answer.putArray("names");
    for (SpecText.Name name : SpecText.names(tree)) {
      ObjectNode each = names.addObject().put("start", name.start()).put("end", name.end());
      each.put("names_a_field", name.namesAField());
      name.parts().forEach(each.putArray("parts")::add);
    }
    return answer;
  }

  private static ObjectNode expression(JsonNode question) {
    boolean isFilter = question.get("filter").asBoolean();
    LogicalPlan stream = stream(question.get("columns").asText());
    return analysis(question.get("sql").asText(), stream, isFilter);
  }

  private static ObjectNode analysis(String sql, LogicalPlan stream, boolean isFilter) {
    LogicalPlan analyzed = SPARK.analyzed(parsed(sql), stream, isFilter);
    Expression tree = SparkSql.expression(analyzed);
    AllowedSql.checkAnalyzed(tree);
    AllowedSql.checkAnalyzed(SparkSql.expression(SparkSql.replaced(analyzed)));
    LogicalPlan optimized = SPARK.optimized(analyzed);
    SparkSql.expressions(optimized).forEach(SqlWorker::checkPatterns);

    ObjectNode answer = JSON.createObjectNode().put("sql", sql).put("nullable", tree.nullable());
    answer.put("type", tree.dataType().json()).put("foldable", tree.foldable());
    answer.put("can_fail", SparkSql.expressions(optimized).stream().anyMatch(CanFail::canFail));
    Set<String> columns = new LinkedHashSet<>();
    collectColumns(tree, columns);
    columns.forEach(answer.putArray("columns")::add);
    if (tree instanceof AttributeReference column) {
      answer.put("column", column.name());
    }
    if (tree.foldable()) {
      answer.put("value", String.valueOf(tree.eval(null)));
    }
    List<String> terms = SpecText.conjuncts(sql);
    if (terms.size() > 1) {
      ArrayNode conjuncts = answer.putArray("conjuncts");
      terms.forEach(term -> conjuncts.add(analysis(term, stream, isFilter)));
    }
    return answer;
  }

  /**
   * Throws Spark's error for a constant pattern or format that Spark does not know. Spark reads it
   * with the first row that is not null.
   */
  private static void checkPatterns(Expression tree) {
    List<Expression> operands = SparkSql.children(tree);
    if (operands.size() > 1 && operands.stream().skip(1).allMatch(Literal.class::isInstance)) {
      try {
        SparkSql.evaluated(tree, operands);
      } catch (RuntimeException error) {
        if (error instanceof SparkThrowable spark && spark.getCondition().contains("PATTERN")) {
          throw error;
        }
      }
    }
    operands.forEach(SqlWorker::checkPatterns);
  }

  private static void collectColumns(Expression tree, Set<String> columns) {
    if (tree instanceof AttributeReference column) {
      columns.add(column.name());
    }
    SparkSql.children(tree).forEach(child -> collectColumns(child, columns));
  }

  private static ObjectNode same(JsonNode question) {
    LogicalPlan stream = stream(question.get("columns").asText());
    List<Expression> trees = new ArrayList<>();
    for (JsonNode sql : question.get("sql")) {
      trees.add(SparkSql.expression(SPARK.analyzed(parsed(sql.asText()), stream, false)));
    }
    return JSON.createObjectNode().put("same", trees.get(0).semanticEquals(trees.get(1)));
  }

  private static LogicalPlan stream(String columns) {
    return STREAMS.computeIfAbsent(
        columns, ddl -> SparkSql.stream(ddl.isEmpty() ? new StructType() : StructType.fromDDL(ddl)));
  }

  private static ObjectNode columns(JsonNode question) {
    ObjectNode answer = JSON.createObjectNode();
    ArrayNode columns = answer.putArray("columns");
    for (StructField field : StructType.fromDDL(question.get("ddl").asText()).fields()) {
      ObjectNode column = columns.addObject().put("name", field.name());
      column.put("type", field.dataType().json()).put("nullable", field.nullable());
      column.put("ddl", field.dataType().sql());
    }
    return answer;
  }

  private static ObjectNode functions() {
    ObjectNode answer = JSON.createObjectNode();
    ArrayNode functions = answer.putArray("functions");
    AllowedSql.functions()
        .forEach(
            (name, info) -> {
              ObjectNode function = functions.addObject().put("name", name);
              function.put("group", info.getGroup()).put("examples", info.getExamples());
              function.put("refused", AllowedSql.refusal(name));
            });
    return answer;
  }
}
