"""What the SQL worker says of expressions: with Spark's analyzer, without a session."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import psutil
import pytest

from job.errors import SetupError
from job.installation import java
from job.installation.jars import jar_folder
from job.sql.json_types import fields_of_json
from job.sql.worker import CostError, SqlWorker
from tests.polling import wait_until
from tests.processes import is_stopped
from tests.semantics.sql_fuzz import COLUMNS as FUZZ_COLUMNS
from tests.semantics.sql_fuzz import SqlFuzz

COLUMNS = {
    "k": "INT", "n": "BIGINT", "x": "DOUBLE", "s": "STRING", "d": "DECIMAL(6,2)",
    "w": "DECIMAL(38,0)", "t": "TIMESTAMP", "dt": "DATE", "m": "MAP<STRING, STRING>",
    "ar": "ARRAY<INT>", "st": "STRUCT<a: INT, b: STRING>", "b": "BOOLEAN",
}  # fmt: skip
REASONS = {
    "AGGREGATE", "WINDOW", "GENERATOR", "SKETCH", "OTHER_FORMAT", "TYPE", "NOT_DETERMINISTIC",
    "CLOCK", "SESSION", "REFLECTION", "FILE",
}  # fmt: skip

# Examples of another form: a query, several columns, or the type TIME, which Spark has not enabled.
NO_EXPRESSION = re.compile(r"\bFROM (VALUES|\(SELECT|test_)|\bAS \w+,|\btime ?'", re.IGNORECASE)
# Allowed functions that depend on the session or the clock with fewer arguments.
REFUSED_EXAMPLES = {
    "convert_timezone('Europe/Brussels', timestamp_ntz'2021-12-05 15:00:00')",
    "unix_timestamp()",
}


@pytest.fixture(scope="module")
def worker() -> Iterator[SqlWorker]:
    with SqlWorker(jar_folder("spark")) as worker:
        yield worker


def analysis(
    worker: SqlWorker, sql: str, columns: Sequence[tuple[str, str]] = tuple(COLUMNS.items())
) -> dict[str, Any]:
    return worker.ask({"kind": "expression", "sql": sql, "columns": columns})


def names(worker: SqlWorker, text: str) -> list[str]:
    return [
        ".".join(each["parts"]) for each in worker.ask({"kind": "names", "text": text})["names"]
    ]


def test_names_are_the_columns_of_the_text(worker: SqlWorker) -> None:
    assert ["left.a", "right.b.c"] == names(worker, "left.a + `right`.b.c -- left.z")
    assert ["left.tags", "left.n"] == names(
        worker, "transform(left.tags, (x, i) -> concat(x, left.n, i))"
    )
    assert ["x.y", "left.z"] == names(worker, "x.y in (1, left.z) and true")
    assert [] == names(worker, "1 + 'left.a'")


def test_text_has_one_line_and_no_comments(worker: SqlWorker) -> None:
    text = worker.ask({"kind": "names", "text": " left.a /* b */ +\n'😀--' || left.`c d` -- e\n"})

    assert "left.a  + '😀--' || left.`c d`" == re.sub("  +", "  ", text["text"])
    found = [text["text"][each["start"] : each["end"]] for each in text["names"]]
    assert ["left.a", "left.`c d`"] == found


def test_argument_of_struct_names_a_field(worker: SqlWorker) -> None:
    answer = worker.ask({"kind": "names", "text": "struct(left.a, abs(left.b))"})

    assert [True, False] == [each["names_a_field"] for each in answer["names"]]


def test_type_columns_and_constants_are_those_of_spark(worker: SqlWorker) -> None:
    answer = analysis(worker, "k + 1.5 > d")
    assert ('"boolean"', ["k", "d"]) == (answer["type"], answer["columns"])
    assert "s" == analysis(worker, "`s`")["column"]
    assert "column" not in analysis(worker, "st.a")
    assert "false" == analysis(worker, "1 > 2 and true")["value"]
    assert "value" not in analysis(worker, "k is null")


def test_conjuncts_are_the_terms_of_and(worker: SqlWorker) -> None:
    answer = analysis(
        worker, "k between 1 and 2 AND ((k + 1) in (2) and not (b and b)) and (b or b)"
    )

    expected = ["k between 1 and 2", "(k + 1) in (2)", "not (b and b)", "b or b"]
    assert expected == [each["sql"] for each in answer["conjuncts"]]
    assert "conjuncts" not in analysis(worker, "b or b and b")


def test_constant_that_fails_in_a_branch_is_no_error(worker: SqlWorker) -> None:
    assert analysis(worker, "case when b then 1/0 end")["can_fail"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(select 1)", "SUBQUERY"),
        ("k in (select 1)", "SUBQUERY"),
        ("exists(select * from text.`/etc/passwd`)", "SUBQUERY"),
        ("reflect('java.lang.System', 'exit', 1)", "REFLECTION"),
        ("java_method('java.lang.System', 'exit', 1)", "REFLECTION"),
        ("transform(ar, x -> reflect('java.lang.System', 'exit', x))", "REFLECTION"),
        ("spark_catalog.default.f(1)", "UNKNOWN"),
        ("rand()", "NOT_DETERMINISTIC"),
        ("uuid()", "NOT_DETERMINISTIC"),
        ("now()", "CLOCK"),
        ("current_timestamp", "CLOCK"),
        ("current_date + interval 1 day", "CLOCK"),
        ("unix_timestamp()", "CLOCK"),
        ("current_user()", "SESSION"),
        ("user", "SESSION"),
        ("input_file_name()", "FILE"),
        ("sum(k)", "AGGREGATE"),
        ("count(*) over ()", "AGGREGATE"),
        ("row_number() over (order by k)", "WINDOW"),
        ("explode(ar)", "GENERATOR"),
        ("from_xml(s, 'a INT')", "OTHER_FORMAT"),
        ("from_avro(s, '{}')", "OTHER_FORMAT"),
        ("parse_json(s)", "TYPE"),
        ("s collate UNICODE", "TYPE"),
        ("try_reflect('java.lang.System', 'exit', 1)", "REFLECTION"),
        ("window(t, '1 hour')", "WINDOW"),
        ("no_such_function(k)", "UNKNOWN"),
        ("(" * 101 + "k" + ")" * 101, "DEPTH"),
    ],
)
def test_part_of_sql_that_a_spec_may_not_use_is_refused(
    worker: SqlWorker, text: str, reason: str
) -> None:
    read = worker.ask({"kind": "names", "text": text})
    answer = read if "refused" in read else analysis(worker, text)

    assert reason == answer.get("refused"), answer


def test_every_function_of_spark_is_allowed_or_refused_with_a_reason(worker: SqlWorker) -> None:
    functions = worker.ask({"kind": "functions"})["functions"]
    refused = Counter(each["refused"] for each in functions)

    assert {None, *REASONS} == set(refused)
    assert refused[None] > 340


def examples(worker: SqlWorker) -> Iterator[tuple[dict[str, Any], str]]:
    """Functions of Spark, each with the examples of its documentation."""
    for function in worker.ask({"kind": "functions"})["functions"]:
        for text in re.findall(r"SELECT (.*?);", function["examples"], re.DOTALL):
            sql = text.replace("_FUNC_", function["name"])
            if not NO_EXPRESSION.search(sql):
                yield function, sql


def test_examples_of_the_allowed_functions_pass_and_of_the_others_do_not(worker: SqlWorker) -> None:
    """A function whose call Spark replaces by other classes and methods is allowed only if these
    are."""
    unlike: list[str] = []
    ran: Counter[bool] = Counter()
    for function, sql in examples(worker):
        answer = analysis(worker, sql)
        is_refused = "refused" in answer
        ran[is_refused] += 1
        may_be_called = function["refused"] is None and sql not in REFUSED_EXAMPLES
        if may_be_called == is_refused:
            unlike.append(f"{sql} -> {answer}")

    assert [] == unlike
    assert ran[False] > 500
    assert ran[True] > 30


def test_canonical_text_is_the_sql_of_the_same_expression(worker: SqlWorker) -> None:
    """A checkpoint freezes the text, and a start reads it again."""
    unlike: list[str] = []
    read: Counter[bool] = Counter()
    fuzz = SqlFuzz(38, ("t",))
    texts = {sql for function, sql in examples(worker) if function["refused"] is None}
    for sql in [*sorted(texts), *(fuzz.expression().replace("t.", "t_") for _ in range(300))]:
        columns = [(f"t_{name}", kind) for name, kind in FUZZ_COLUMNS.items()]
        answer = analysis(worker, sql, columns=columns)
        read["canonical" in answer] += 1
        if "canonical" in answer:
            again = analysis(worker, answer["canonical"], columns=columns)
            if any(again.get(name) != answer[name] for name in ("canonical", "type")):
                unlike.append(f"{sql} -> {answer['canonical']} -> {again}")

    assert [] == unlike
    assert read[True] > 600


@pytest.mark.parametrize(
    ("one", "other", "unlike"),
    [
        ("UCASE(s)", "upper( s )", "lower(s)"),
        ("coalesce(k, 1)", "NVL(k, 1)", "nvl(k, 2)"),
        ("cast(s AS STRING) || 'a'", "concat(s, 'a')", "concat('a', s)"),
        ("t + interval 1 hour", "t + INTERVAL '1' HOUR", "t + interval 2 hours"),
        # Spark runs these as expressions that it cannot read again.
        ("base64(cast(s AS BINARY))", "BASE64(CAST(`s` as binary))", "base64(cast('' AS BINARY))"),
        ("k BETWEEN 1 AND 2", "between(k,1,2)", "k between 1 and 3"),
        # Spark writes these without their schema, or as other expressions.
        ("from_json(s,'a INT')", "from_json(s, 'a INT')", "from_json(s, 'a STRING')"),
        ("get(ar, k)", "get(ar,k)", "ar[k]"),
        ("filter(ar,x->x > k)", "filter(ar, x -> x>k)", "filter(ar, x -> x < k)"),
    ],
)
def test_spellings_have_one_canonical_text_and_other_expressions_another(
    worker: SqlWorker, one: str, other: str, unlike: str
) -> None:
    texts = [analysis(worker, sql)["canonical"] for sql in (one, other, unlike)]

    assert texts[0] == texts[1] != texts[2]


def test_locale_and_time_zone_of_the_machine_change_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turkish = "-Duser.language=tr -Duser.country=TR -Duser.timezone=Europe/Istanbul"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", turkish)
    monkeypatch.setenv("LC_ALL", "tr_TR.ISO-8859-9")
    monkeypatch.setenv("TZ", "America/New_York")

    with SqlWorker(jar_folder("spark")) as worker:
        assert "noneii̇" == analysis(worker, "lower('NoneIİ')")["value"]
        assert "0" == analysis(worker, "unix_seconds(timestamp'1970-01-01 00:00:00')")["value"]
        assert "0" == analysis(worker, "hour(timestamp_seconds(0))")["value"]


def test_schema_is_read_by_spark(worker: SqlWorker) -> None:
    ddl = "`a b` INT NOT NULL, t ARRAY<STRUCT<x: DATE>>, v VARCHAR(3), d INT COMMENT 'x'"
    fields = fields_of_json(worker.ask({"kind": "columns", "ddl": ddl})["type"])

    assert ["a b INT", "t ARRAY<STRUCT<x: DATE>>"] == [f"{f.name} {f.type}" for f in fields[:2]]
    assert [True, False, False, False] == [field.has_constraint for field in fields]
    assert "PARSE_SYNTAX_ERROR" == worker.ask({"kind": "columns", "ddl": "a INT,"})["condition"]


def test_answer_that_takes_too_long_ends_the_process_and_the_next_question_starts_another() -> None:
    before = children()
    with SqlWorker(jar_folder("spark"), seconds=20) as worker:
        assert [] == names(worker, "1")
        [process] = children() - before
        process.suspend()
        wait_until(lambda: is_stopped(process), 20, "the process is stopped")
        worker._seconds = 0.5
        with pytest.raises(CostError, match="needed more than"):
            names(worker, "1")
        assert not process.is_running()
        worker._seconds = 20
        assert [] == names(worker, "1")


def children() -> set[psutil.Process]:
    return set(psutil.Process().children())


def test_process_without_enough_memory_ends_with_a_message() -> None:
    with SqlWorker(jar_folder("spark")) as worker:
        with pytest.raises(CostError, match="256 MB of memory"):
            analysis(worker, "concat(repeat('x', 400000000), s)")
        assert [] == names(worker, "1")


def test_missing_jar_and_java_are_named(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with SqlWorker(tmp_path) as worker, pytest.raises(SetupError, match="STREAMJOIN_JARS"):
        names(worker, "1")
    for name in ("JAVA_HOME", "PATH"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(java, "SYSTEM_JAVAS", tmp_path)
    monkeypatch.setattr(java, "RECORD", tmp_path / "java_home")
    with (
        SqlWorker(jar_folder("spark")) as worker,
        pytest.raises(SetupError, match="no Java found"),
    ):
        names(worker, "1")
