package streamjoin;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.ZoneId;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.UnaryOperator;
import java.util.regex.PatternSyntaxException;
import java.util.stream.Stream;
import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry$;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.NumericType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampType;

/**
 * Answers questions about the SQL of a spec: a JSON document each, in a line of standard input or as
 * argument of `answer`. job/sql/worker.py describes questions and answers.
 */
public final class SqlWorker {
  private static final long STACK_BYTES = 16 << 20;
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final SparkSql SPARK = new SparkSql();
  private static final SqlRows ROWS = new SqlRows(SPARK);
  private static final Map<String, LogicalPlan> STREAMS = new LatestMap<>();
  private static final Map<String, DataType> TYPES = new LatestMap<>();

  /** Expressions whose second operand is a regular expression, or a format of dates. */
  private static final Set<String> HAS_PATTERN =
      Set.of(
          "RLike", "RegExpReplace", "RegExpExtract", "RegExpExtractAll", "RegExpInStr", "RegExpCount",
          "RegExpSubStr", "StringSplit", "Like", "ILike", "DateFormatClass", "GetTimestamp",
          "FromUnixTime", "ToUnixTimestamp", "UnixTimestamp");

  private static final List<UnaryOperator<LogicalPlan>> FORMS =
      List.of(SparkSql::replaced, UnaryOperator.identity());

  private SqlWorker() {}

  public static void main(String[] arguments) throws Exception {
    PrintStream output = System.out;
    System.setOut(System.err); // a library must not write between two answers
    BufferedReader questions =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    ExecutorService answers = Executors.newSingleThreadExecutor();
    for (String line = questions.readLine(); line != null; line = questions.readLine()) {
      String question = line;
      answers.submit(
          () -> {
            output.write((answer(question) + "\n").getBytes(StandardCharsets.UTF_8));
            output.flush();
            return null;
          });
    }
    Runtime.getRuntime().halt(0); // also while an answer takes long: nobody waits for it
  }

  /**
   * Never throws; an error is a part of the answer. Runs in a thread with a stack for the recursion
   * of Spark's parser and analyzer, whatever thread calls it.
   */
  public static synchronized String answer(String question) throws InterruptedException {
    String[] answer = new String[1];
    Runnable task = () -> answer[0] = SPARK.withSettings(() -> answered(question)).toString();
    Thread thread = new Thread(null, task, "sql", STACK_BYTES);
    thread.start();
    thread.join();
    return answer[0];
  }

  private static ObjectNode answered(String text) {
    try {
      JsonNode question = JSON.readTree(text);
      return switch (question.get("kind").asText()) {
        case "names" -> names(question);
        case "expression" -> expression(question);
        case "filter" -> filter(question);
        case "columns" -> columns(question);
        case "time_zone" -> timeZone(question.get("name").asText());
        case "time_zones" -> timeZones();
        case "functions" -> functions();
        case "open" -> ROWS.open(question);
        case "run" -> ROWS.run(question);
        case "drop" -> ROWS.drop(question);
        default -> throw new IllegalArgumentException("no kind of question: " + text);
      };
    } catch (AllowedSql.Refusal refusal) {
      return JSON.createObjectNode().put("refused", refusal.reason).put("what", refusal.what);
    } catch (StackOverflowError error) {
      return JSON.createObjectNode().put("refused", "DEPTH").put("what", "");
    } catch (OutOfMemoryError error) {
      return JSON.createObjectNode().put("refused", "MEMORY").put("what", "");
    } catch (Throwable error) { // an answer that ends the thread would be null
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
  private static Expression parsed(String text, String own) {
    Expression tree = SparkSql.parsed(text);
    if (tree instanceof Alias) {
      throw new AllowedSql.Refusal("EXPRESSION", "AS");
    }
    AllowedSql.checkParsed(tree, own);
    return tree;
  }

  private static ObjectNode names(JsonNode question) {
    String text = SpecText.withoutComments(question.get("text").asText());
    boolean isOwn = question.has("is_of_spec") && !question.get("is_of_spec").asBoolean();
    Expression tree = parsed(text, isOwn ? InTimeZone.NAME : null);
    ObjectNode answer = JSON.createObjectNode().put("text", text);
    ArrayNode names = answer.putArray("names");
    SpecText.variables(tree).forEach(answer.putArray("variables")::add);
    for (SpecText.Name name : SpecText.names(tree)) {
      ObjectNode each = names.addObject().put("start", name.start()).put("end", name.end());
      each.put("names_a_field", name.namesAField());
      name.parts().forEach(each.putArray("parts")::add);
    }
    return answer;
  }

  private static ObjectNode expression(JsonNode question) {
    LogicalPlan stream = stream(question.get("columns"));
    String zone = question.has("time_zone") ? question.get("time_zone").asText() : null;
    return analysis(question.get("sql").asText(), zone, stream);
  }

  /** Nothing, if Spark runs the expression as the condition of a filter, and each of its terms. */
  private static ObjectNode filter(JsonNode question) {
    LogicalPlan stream = stream(question.get("columns"));
    String text = question.get("sql").asText();
    Stream.concat(Stream.of(text), SpecText.conjuncts(text).stream())
        .distinct()
        .map(term -> new Filter(parsed(term, InTimeZone.NAME), stream))
        .forEach(filter -> checkedAndOptimized(SPARK.analyzed(filter)));
    return JSON.createObjectNode();
  }

  /** `zone`: the time zone of the expression; null for that of the session. */
  private static ObjectNode analysis(String text, String zone, LogicalPlan stream) {
    parsed(text, InTimeZone.NAME);
    String zoned = zoned(text, zone);
    LogicalPlan analyzed = SPARK.analyzed(SparkSql.column(SparkSql.parsed(zoned), stream));
    Expression tree = SparkSql.expression(analyzed);
    String sql = zone != null && InTimeZone.isNeeded(tree) ? zoned : text;
    LogicalPlan optimized = checkedAndOptimized(analyzed);

    ObjectNode answer = JSON.createObjectNode().put("text", text).put("sql", sql);
    answer.put("type", tree.dataType().json());
    answer.put("canonical", canonical(analyzed, text, zone, stream));
    Expression computed = SparkSql.expression(optimized);
    // The optimizer replaces an expression by a constant even if it contains a column.
    answer.put("is_constant", computed instanceof Literal).put("compares", compares(computed));
    boolean canFail = SparkSql.expressions(optimized).stream().anyMatch(CanFail::canFail);
    answer.put("can_fail", canFail || CanFail.makesMap(tree));
    answer.put("casts_number_to_time", castsNumberToTime(tree));
    Set<String> columns = new LinkedHashSet<>();
    collectColumns(tree, columns);
    columns.forEach(answer.putArray("columns")::add);
    if (tree instanceof AttributeReference column) {
      answer.put("column", column.name());
    }
    if (tree.foldable()) {
      answer.put("value", String.valueOf(tree.eval(null)));
    }
    List<String> terms = SpecText.conjuncts(text);
    if (terms.size() > 1) {
      ArrayNode conjuncts = answer.putArray("conjuncts");
      terms.forEach(term -> conjuncts.add(analysis(term, zone, stream)));
    }
    return answer;
  }

  /** Throws Refusal for what a spec may not use, and Spark's error for a constant that fails. */
  private static LogicalPlan checkedAndOptimized(LogicalPlan analyzed) {
    AllowedSql.checkAnalyzed(SparkSql.expression(analyzed));
    AllowedSql.checkAnalyzed(SparkSql.expression(SparkSql.replaced(analyzed)));
    LogicalPlan optimized = SPARK.optimized(analyzed);
    SparkSql.expressions(optimized).forEach(SqlWorker::checkPatterns);
    return optimized;
  }

  /**
   * Throws an error for a constant pattern or format that Spark does not know. Spark reads it with
   * the first row that is not null.
   */
  private static void checkPatterns(Expression tree) {
    List<Expression> operands = SparkSql.children(tree);
    if (HAS_PATTERN.contains(tree.getClass().getSimpleName())
        && operands.stream().skip(1).allMatch(Literal.class::isInstance)) {
      try {
        SparkSql.evaluated(tree, operands);
      } catch (PatternSyntaxException error) { // of split, where Spark does not catch it
        throw new AllowedSql.Refusal("PATTERN", tree.sql());
      } catch (RuntimeException error) {
        if (error instanceof SparkThrowable spark
            && String.valueOf(spark.getCondition()).contains("PATTERN")) {
          throw error;
        }
      }
    }
    operands.forEach(SqlWorker::checkPatterns);
  }

  /**
   * One text for all spellings that Spark reads as the same expression again: as Spark writes the
   * expression that it runs, without synonyms of functions; else as Spark writes the analyzed one;
   * else the tokens of `text`. `zone` as for `analysis`.
   */
  private static String canonical(
      LogicalPlan analyzed, String text, String zone, LogicalPlan stream) {
    for (UnaryOperator<LogicalPlan> form : FORMS) {
      Expression tree = plain(SparkSql.expression(form.apply(analyzed)));
      String written = tree.sql();
      try {
        parsed(written, InTimeZone.NAME);
        Expression parsed = SparkSql.parsed(zoned(written, zone));
        LogicalPlan again = SPARK.analyzed(SparkSql.column(parsed, stream));
        Expression read = plain(SparkSql.expression(form.apply(again)));
        if (read.semanticEquals(tree) && read.sql().equals(written)) {
          return written;
        }
      } catch (Exception error) { // what Spark writes is not always SQL
      }
    }
    return SpecText.tokensOf(text);
  }

  /** Without synonyms of functions, and without casts to the same type, which Spark adds. */
  private static Expression plain(Expression tree) {
    Expression plain = (Expression) tree.mapChildren(child -> plain((Expression) child));
    plain.unsetTagValue(FunctionRegistry$.MODULE$.FUNC_ALIAS());
    boolean isNeedless =
        plain instanceof Cast cast && cast.child().dataType().equals(cast.dataType());
    return isNeedless ? ((Cast) plain).child() : plain;
  }

  private static String zoned(String text, String zone) {
    return zone == null ? text : InTimeZone.sql(zone, SpecText.withCasts(text));
  }

  /** Whether the expression compares columns that Spark does not cast with constants. */
  private static boolean compares(Expression tree) {
    if (tree instanceof And and) { // of BETWEEN
      return compares(and.left()) && compares(and.right());
    }
    if (tree instanceof Not not) {
      return not.child() instanceof EqualTo && compares(not.child());
    }
    boolean isComparison = tree instanceof BinaryComparison && !(tree instanceof EqualNullSafe);
    return (isComparison || tree instanceof In || tree instanceof InSet)
        && SparkSql.children(tree).stream()
            .allMatch(each -> each instanceof AttributeReference || each.foldable());
  }

  /** Whether a number is cast to TIMESTAMP, which reads it as seconds. */
  private static boolean castsNumberToTime(Expression tree) {
    return tree instanceof Cast cast
            && cast.dataType() instanceof TimestampType
            && cast.child().dataType() instanceof NumericType
        || SparkSql.children(tree).stream().anyMatch(SqlWorker::castsNumberToTime);
  }

  private static void collectColumns(Expression tree, Set<String> columns) {
    if (tree instanceof AttributeReference column) {
      columns.add(column.name());
    }
    SparkSql.children(tree).forEach(child -> collectColumns(child, columns));
  }

  private static LogicalPlan stream(JsonNode columns) {
    return STREAMS.computeIfAbsent(columns.toString(), text -> SparkSql.stream(struct(columns)));
  }

  private static StructType struct(JsonNode columns) {
    StructType struct = new StructType();
    for (JsonNode column : columns) {
      DataType type = TYPES.computeIfAbsent(column.get(1).asText(), SparkSql::type);
      struct = struct.add(column.get(0).asText(), type);
    }
    return struct;
  }

  private static ObjectNode columns(JsonNode question) {
    StructType columns = StructType.fromDDL(question.get("ddl").asText());
    return JSON.createObjectNode().put("type", columns.json());
  }

  private static ObjectNode timeZone(String name) {
    ObjectNode answer = JSON.createObjectNode().put("is_known", TimeZones.isKnown(name));
    if (answer.get("is_known").asBoolean()) {
      answer.put("longest_set_back_ms", TimeZones.longestSetBack(name).toMillis());
    }
    return answer;
  }

  private static ObjectNode timeZones() {
    ObjectNode answer = JSON.createObjectNode();
    ZoneId.getAvailableZoneIds().forEach(answer.putArray("names")::add);
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
