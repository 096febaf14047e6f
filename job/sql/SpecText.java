package streamjoin;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.antlr.v4.runtime.CharStreams;
import org.antlr.v4.runtime.CommonTokenStream;
import org.antlr.v4.runtime.ParserRuleContext;
import org.antlr.v4.runtime.Token;
import org.antlr.v4.runtime.tree.ParseTree;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.LambdaFunction;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.UnresolvedNamedLambdaVariable;
import org.apache.spark.sql.catalyst.parser.SqlBaseLexer;
import org.apache.spark.sql.catalyst.parser.SqlBaseParser;
import org.apache.spark.sql.catalyst.parser.UpperCaseCharStream;
import org.apache.spark.sql.catalyst.trees.Origin;
import scala.jdk.javaapi.CollectionConverters;

/** The text of an expression: its names, and the terms of its ANDs. */
final class SpecText {
  /** A name in the text, e.g. left.address.city. */
  record Name(List<String> parts, int start, int end, boolean namesAField) {}

  static final int DEPTH_MAX = 100;
  private static final Set<Integer> OPENING =
      Set.of(SqlBaseParser.LEFT_PAREN, SqlBaseParser.LEFT_BRACKET, SqlBaseParser.CASE);
  private static final Set<Integer> CLOSING =
      Set.of(SqlBaseParser.RIGHT_PAREN, SqlBaseParser.RIGHT_BRACKET, SqlBaseParser.END);

  private static final Set<Integer> TIMESTAMPS =
      Set.of(SqlBaseParser.TIMESTAMP, SqlBaseParser.TIMESTAMP_LTZ);
  private static final Set<Integer> LITERALS =
      Set.of(SqlBaseParser.STRING_LITERAL, SqlBaseParser.DOUBLEQUOTED_STRING);

  private SpecText() {}

  /** The names of columns in `tree`, the parsed `text`, in order. */
  static List<Name> names(Expression tree) {
    List<Name> found = new ArrayList<>();
    collect(tree, new HashSet<>(), false, found);
    // The parser repeats the operand of CASE and LIKE ANY for each of their alternatives.
    return found.stream().distinct().sorted(Comparator.comparingInt(Name::start)).toList();
  }

  /** The variables of the lambda functions in `tree`. */
  static Set<String> variables(Expression tree) {
    Set<String> found = new TreeSet<>();
    if (tree instanceof LambdaFunction lambda) {
      CollectionConverters.asJava(lambda.arguments()).forEach(each -> found.add(each.name()));
    }
    SparkSql.children(tree).forEach(child -> found.addAll(variables(child)));
    return found;
  }

  /** Spark's parser takes each name in a lambda for one of its variables: `variables` are them. */
  private static void collect(
      Expression tree, Set<String> variables, boolean namesAField, List<Name> found) {
    if (tree instanceof UnresolvedAttribute name) {
      add(CollectionConverters.asJava(name.nameParts()), tree.origin(), namesAField, found);
    } else if (tree instanceof UnresolvedNamedLambdaVariable name) {
      List<String> parts = CollectionConverters.asJava(name.nameParts());
      if (!variables.contains(parts.get(0).toLowerCase(java.util.Locale.ROOT))) {
        add(parts, tree.origin(), namesAField, found);
      }
    } else if (tree instanceof LambdaFunction lambda) {
      Set<String> inner = new HashSet<>(variables);
      for (NamedExpression argument : CollectionConverters.asJava(lambda.arguments())) {
        inner.add(argument.name().toLowerCase(java.util.Locale.ROOT));
      }
      collect(lambda.function(), inner, false, found);
    } else {
      boolean isStruct = tree instanceof CreateNamedStruct;
      for (Expression child : SparkSql.children(tree)) {
        collect(child, variables, isStruct, found);
      }
    }
  }

  private static void add(
      List<String> parts, Origin origin, boolean namesAField, List<Name> found) {
    int start = (Integer) origin.startIndex().get();
    found.add(new Name(parts, start, (Integer) origin.stopIndex().get() + 1, namesAField));
  }

  /**
   * `text` on one line, without comments. Indexes of names are those of this text. Throws Refusal if
   * it is nested too deep: Spark's parser would need minutes.
   */
  static String withoutComments(String text) {
    StringBuilder plain = new StringBuilder();
    int depth = 0;
    for (Token token : tokens(text).getTokens()) {
      if (token.getType() == Token.EOF) {
        break;
      }
      depth += OPENING.contains(token.getType()) ? 1 : CLOSING.contains(token.getType()) ? -1 : 0;
      if (depth > DEPTH_MAX) {
        throw new AllowedSql.Refusal("DEPTH", String.valueOf(DEPTH_MAX));
      }
      boolean isHidden = token.getChannel() != Token.DEFAULT_CHANNEL;
      plain.append(isHidden ? " " : text.substring(start(text, token), end(text, token)));
    }
    return plain.toString().replaceAll("^ +| +$", "");
  }

  /** `text` with one space between its tokens. */
  static String tokensOf(String text) {
    return tokens(text).getTokens().stream()
        .filter(each -> each.getChannel() == Token.DEFAULT_CHANNEL && each.getType() != Token.EOF)
        .map(each -> text.substring(start(text, each), end(text, each)))
        .collect(Collectors.joining(" "));
  }

  /** `text` with cast('…' AS TIMESTAMP) in place of each TIMESTAMP '…'. */
  static String withCasts(String text) {
    StringBuilder result = new StringBuilder();
    int copied = 0;
    Token type = null;
    for (Token token : tokens(text).getTokens()) {
      if (type != null && LITERALS.contains(token.getType())) {
        result.append(text, copied, start(text, type)).append("cast(");
        result.append(text, start(text, token), end(text, token)).append(" AS TIMESTAMP)");
        copied = end(text, token);
      }
      if (token.getChannel() == Token.DEFAULT_CHANNEL) {
        type = TIMESTAMPS.contains(token.getType()) ? token : null;
      }
    }
    return result.append(text, copied, text.length()).toString();
  }

  /** Code points of ANTLR are not the characters of Java. */
  private static int start(String text, Token token) {
    return text.offsetByCodePoints(0, token.getStartIndex());
  }

  private static int end(String text, Token token) {
    return text.offsetByCodePoints(0, token.getStopIndex() + 1);
  }

  private static CommonTokenStream tokens(String text) {
    SqlBaseLexer lexer = new SqlBaseLexer(new UpperCaseCharStream(CharStreams.fromString(text)));
    lexer.removeErrorListeners();
    CommonTokenStream tokens = new CommonTokenStream(lexer);
    tokens.fill();
    return tokens;
  }

  /** The terms that AND joins in `text`, a valid expression. */
  static List<String> conjuncts(String text) {
    SqlBaseParser parser = new SqlBaseParser(tokens(text));
    parser.removeErrorListeners();
    List<String> terms = new ArrayList<>();
    split(parser.singleExpression().namedExpression().expression(), text, terms);
    return terms;
  }

  private static void split(ParserRuleContext tree, String text, List<String> terms) {
    ParserRuleContext inner = tree;
    while (inner.getChildCount() == 1 && inner.getChild(0) instanceof ParserRuleContext only) {
      inner = only;
    }
    if (inner instanceof SqlBaseParser.ParenthesizedExpressionContext parentheses) {
      split(parentheses.expression(), text, terms);
    } else if (inner instanceof SqlBaseParser.LogicalBinaryContext logical
        && logical.operator.getType() == SqlBaseParser.AND) {
      for (ParseTree side : List.of(logical.booleanExpression(0), logical.booleanExpression(1))) {
        split((ParserRuleContext) side, text, terms);
      }
    } else {
      terms.add(text.substring(start(text, tree.getStart()), end(text, tree.getStop())));
    }
  }
}
