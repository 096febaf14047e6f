"""Compares the values of Spark's functions in a simulation and in a query of Spark.

The expressions are the examples of Spark's documentation, with columns in place of the literals
where Spark's analysis accepts them: both engines compute a constant while they optimize the plan.

The SQL worker evaluates an expression as a simulation does: it interprets one that cannot fail, and
generates code for the others. A session with the settings of the job runs a query, with generated
code.
"""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from job.plan import tuning
from job.plan.plan import guarded
from job.plan.position import position_column
from job.spark.try_eval import register_try_eval
from job.sql.rows import Step
from tests.sql_worker import WORKER

_LITERAL = re.compile(
    r"""
      \b interval \s* -? \s* (?: '[^']*' | \d+ ) \s+ \w+ (?: \s+ (?: to | \d+ ) \s+ \w+ )*
    | \b timestamp_\w+ \s* '[^']*'                   # JSON has no values of these types
    | \b x \s+ '[^']*' | \b escape \s+ '[^']*' | \b decimal \( [^)]* \) | ` [^`]* `
    | (?P<literal>
        \b (?: date | timestamp | x ) \s* '[^']*'
        | (?: \b r )? (?: '(?: [^'\\] | \\. )*' | "(?: [^"\\] | \\. )*" )
        | \b (?: true | false ) \b
        | (?<! [\w.] ) (?: \d+ \.? \d* | \. \d+ ) (?: e -? \d+ )? (?: bd | [lsydf] )? \b )
    """,
    re.VERBOSE | re.IGNORECASE,
)

_EDGES: Mapping[str, tuple[str, str]] = {
    "boolean": ("false", "true"),
    "tinyint": ("0", "-128"),
    "smallint": ("0", "-32768"),
    "int": ("0", "-1"),
    "bigint": ("0", str(-(2**63))),
    "float": ("-0.0", '"NaN"'),
    "double": ("-0.0", '"NaN"'),
    "decimal": ("0", "-1"),
    "string": ('""', '"Straße İ 😀"'),
    "binary": ('""', '"/wA="'),
    "date": ('"0001-01-01"', '"9999-12-31"'),
    "timestamp": ('"0001-01-01T00:00:00Z"', '"9999-12-31T23:59:59.999999Z"'),
}
"""Other values of the columns in JSON, by type."""

_TIMES = "'timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\""
_AT_ONCE = 40
"""Expressions of a query."""

_INPUT = "value STRING, n BIGINT"

Values = list[str | None] | str
"""Value and type on each row in JSON, None where the expression fails; or the error of each row."""


@dataclass(frozen=True)
class Column:
    """A column in place of a literal."""

    name: str
    type: str
    value: str
    """Of the literal, in JSON."""


@dataclass(frozen=True)
class Expression:
    sql: str
    example: str
    columns: tuple[Column, ...] = ()
    can_fail: bool = True


@dataclass
class Result:
    with_values: set[str] = field(default_factory=set)
    """Examples with a value on a row."""
    with_errors: set[str] = field(default_factory=set)
    """Functions whose errors were compared."""
    counts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


class _FailureError(Exception):
    """Spark's error condition, or the class of another error."""


def compared(spark: SparkSession, examples: Sequence[str]) -> Result:
    query = _session(spark)
    columns = _columns(query, examples)
    rows = _rows(list(columns.values()))
    simulation, spark_query = _Simulation(rows), _Query(query, rows)
    result = Result()
    made = {text: _with_columns(text, columns) for text in examples}
    constants = [Expression(text, text) for text, found in made.items() if found is None]
    with_columns = [found for found in made.values() if found is not None]
    for group, numbers in (
        (constants, range(1)),
        ([each for each in with_columns if not each.can_fail], range(len(rows))),
        ([each for each in with_columns if each.can_fail], range(len(rows))),
    ):
        for expressions in _batches(group):
            _compare(simulation, spark_query, expressions, numbers, result)
    return result


def _compare(
    simulation: "_Engine",
    query: "_Engine",
    expressions: Sequence[Expression],
    rows: Sequence[int],
    result: Result,
) -> None:
    own, of_spark = (_evaluated(engine, expressions, rows) for engine in (simulation, query))
    for each in expressions:
        if own[each] != of_spark[each]:
            result.differences.append(
                f"{each}\n  simulated: {own[each]}\n  query: {of_spark[each]}"
            )
        elif isinstance(own[each], str):
            result.counts["errors"] += 1
            if not each.can_fail:
                result.differences.append(f"{each}\n  cannot fail, but fails: {own[each]}")
        else:
            result.counts["values"] += sum(value is not None for value in own[each])
            if any(value is not None for value in own[each]):
                result.with_values.add(each.example)
            if None in own[each]:
                result.counts["failures"] += own[each].count(None)
                row = rows[own[each].index(None)]
                _compare_errors(simulation, query, each, row, result)


def _compare_errors(
    simulation: "_Engine", query: "_Engine", expression: Expression, row: int, result: Result
) -> None:
    """Once for each function: an error ends a query, so each needs its own."""
    function = expression.example.partition("(")[0]
    if function in result.with_errors:
        return
    result.with_errors.add(function)
    errors = [engine.error(expression, row) for engine in (simulation, query)]
    result.counts["errors"] += 1
    if errors[0] != errors[1] or errors[0] is None:
        result.differences.append(f"{expression}\n  errors: {errors}")


def _evaluated(
    engine: "_Engine", expressions: Sequence[Expression], rows: Sequence[int]
) -> dict[Expression, Values]:
    try:
        return engine.values(expressions, rows)
    except _FailureError as error:
        if len(expressions) == 1:
            return {expressions[0]: str(error)}
    half = len(expressions) // 2
    return _evaluated(engine, expressions[:half], rows) | _evaluated(
        engine, expressions[half:], rows
    )


class _Engine(ABC):
    def __init__(self, rows: Sequence[str]) -> None:
        self._rows = rows

    @abstractmethod
    def _run(self, steps: Sequence[Step], rows: Sequence[int]) -> list[list[Any]]: ...

    def values(
        self, expressions: Sequence[Expression], rows: Sequence[int]
    ) -> dict[Expression, Values]:
        texts = [_guarded(each) if each.can_fail else _struct(each) for each in expressions]
        last = [
            f"to_json({text}, map('ignoreNullFields', 'false', {_TIMES})) AS e{index}"
            for index, text in enumerate(texts)
        ]
        found = self._run([*_decoding(expressions), last], rows)
        return {each: [row[index] for row in found] for index, each in enumerate(expressions)}

    def error(self, expression: Expression, row: int) -> str | None:
        """Of the expression alone, without try_eval. None: it has a value."""
        # With a try_eval, the worker generates code.
        last = [f"to_json({_struct(expression)}) AS e0", "try_eval(n) AS generated"]
        steps = [*_decoding([expression]), last]
        try:
            self._run(steps, [row])
        except _FailureError as error:
            return str(error)
        return None


class _Simulation(_Engine):
    """The SQL worker."""

    _numbers = count(10**8)
    """Of programs and stores: others than those of tests/sql_worker.py."""

    def _run(self, steps: Sequence[Step], rows: Sequence[int]) -> list[list[Any]]:
        number = next(self._numbers)
        program = {"program": number, "columns": _INPUT, "steps": steps}
        names = [text.rpartition(" AS ")[2] for text in steps[-1]]
        self._ask({"kind": "open", **program, "returns": names, "encodes": []})
        read = [[self._rows[row], row] for row in rows]
        try:
            answer = self._ask({"kind": "run", "program": number, "rows": read, "keep": number})
        finally:
            WORKER.ask({"kind": "drop", "store": number})
        return answer["rows"]

    @staticmethod
    def _ask(question: Mapping[str, Any]) -> Any:
        answer = WORKER.ask(question)
        if "error" in answer:
            raise _FailureError(answer.get("condition") or answer["class"].rpartition(".")[2])
        return answer


class _Query(_Engine):
    """A session of Spark with the settings of the job."""

    def __init__(self, session: SparkSession, rows: Sequence[str]) -> None:
        super().__init__(rows)
        self._session = session
        self._frames: dict[tuple[int, ...], DataFrame] = {}

    def _run(self, steps: Sequence[Step], rows: Sequence[int]) -> list[list[Any]]:
        frame = self._frame(tuple(rows))
        try:
            for step in steps:
                frame = frame.selectExpr(*step)
            return [list(row) for row in frame.collect()]
        except PySparkException as error:
            raise _FailureError(error.getCondition() or type(error).__name__) from error
        except Py4JJavaError as error:
            cause = error.java_exception
            while cause.getCause() is not None:
                cause = cause.getCause()
            raise _FailureError(cause.getClass().getSimpleName()) from error

    def _frame(self, rows: tuple[int, ...]) -> DataFrame:
        if rows not in self._frames:
            read = [[self._rows[row], row] for row in rows]
            self._frames[rows] = self._session.createDataFrame(read, _INPUT)
        return self._frames[rows]


def _session(spark: SparkSession) -> SparkSession:
    """With the settings of the job, which generates code."""
    query = spark.newSession()
    for name, value in {
        **{name: value for name, value in tuning.CONF.items() if query.conf.isModifiable(name)},
        "spark.sql.codegen.factoryMode": "FALLBACK",
        "spark.sql.codegen.wholeStage": "true",
    }.items():
        query.conf.set(name, value)
    register_try_eval(query)
    return query


def _decoding(expressions: Sequence[Expression]) -> list[Step]:
    """The columns of the expressions, from a JSON document."""
    columns = {column.name: column for each in expressions for column in each.columns}
    position = f"n AS {position_column('left')}"
    if not columns:
        return [["n", position]]
    ddl = ", ".join(f"{column.name} {column.type}" for column in columns.values())
    return [
        ["n", f"from_json(value, '{ddl}') AS decoded", position],
        ["n", *(f"decoded.{name} AS {name}" for name in columns), position_column("left")],
    ]


def _struct(expression: Expression) -> str:
    return f"struct({expression.sql} AS value, typeof({expression.sql}) AS type)"


def _guarded(expression: Expression) -> str:
    return guarded(f"try_eval({_struct(expression)})", "left")


def _columns(spark: SparkSession, examples: Sequence[str]) -> dict[str, Column]:
    """A column for each literal."""
    literals = dict.fromkeys(
        found["literal"]
        for text in examples
        for found in _LITERAL.finditer(text)
        if found["literal"]
    )
    names = [f"c{index}" for index in range(len(literals))]
    one = spark.range(1)
    types = one.selectExpr(*literals).schema.fields
    [values] = one.selectExpr(
        *(f"to_json(struct({literal} AS value), map({_TIMES}))" for literal in literals)
    ).collect()
    return {
        literal: Column(name, kind.dataType.simpleString(), value[len('{"value":') : -1])
        for literal, name, kind, value in zip(literals, names, types, values, strict=True)
    }


def _with_columns(text: str, columns: Mapping[str, Column]) -> Expression | None:
    """`text` with columns in place of as many literals as Spark's analysis accepts. None: of
    none."""
    literals = [found for found in _LITERAL.finditer(text) if found["literal"]]
    chosen, answer = literals, _analysis(text, literals, columns)
    if "type" not in answer:
        chosen = []
        for literal in literals:
            more = _analysis(text, [*chosen, literal], columns)
            if "type" in more:
                chosen, answer = [*chosen, literal], more
    if not chosen:
        return None
    used = tuple(columns[literal["literal"]] for literal in chosen)
    return Expression(answer["text"], text, used, answer["can_fail"])


def _analysis(
    text: str, literals: Sequence[re.Match[str]], columns: Mapping[str, Column]
) -> dict[str, Any]:
    sql = text
    for literal in reversed(literals):
        sql = sql[: literal.start()] + columns[literal["literal"]].name + sql[literal.end() :]
    of_sql = {
        column.name: column.type for column in (columns[each["literal"]] for each in literals)
    }
    return WORKER.ask({"kind": "expression", "sql": sql, "columns": list(of_sql.items())})


def _rows(columns: Sequence[Column]) -> list[str]:
    """JSON documents: the values of the literals, nulls, other values, and mixtures of these."""
    values = [column.value for column in columns]
    nulls = ["null" for _ in columns]
    edges = [[_EDGES[column.type.partition("(")[0]][n] for column in columns] for n in (0, 1)]
    rows = [values, nulls, *edges]
    for first, second in ((values, nulls), (edges[0], values), (values, edges[1])):
        rows.append([(first, second)[index % 2][index] for index in range(len(columns))])
    return [
        "{" + ", ".join(f'"{c.name}": {v}' for c, v in zip(columns, row, strict=True)) + "}"
        for row in rows
    ]


def _batches(expressions: Sequence[Expression]) -> Iterator[list[Expression]]:
    remaining = iter(expressions)
    while batch := list(islice(remaining, _AT_ONCE)):
        yield batch
