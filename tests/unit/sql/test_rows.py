"""Spark's expressions on rows, in the process that answers questions about SQL."""

from collections.abc import Mapping
from typing import Any

import pytest

from job.sql.rows import EvaluationError, SqlRows
from job.sql.worker import CostError
from tests.sql_worker import ROWS


def test_steps_follow_each_other_and_try_eval_gives_null_where_an_expression_fails() -> None:
    steps = [
        ["*", "try_eval(struct(cast(s AS INT) AS value)) AS tried"],
        ["n + 1 AS next", "tried.value IS NULL AS fails", "s"],
    ]
    program = ROWS.program("n BIGINT, s STRING", steps, ["next", "fails", "s"])

    found = ROWS.run(program, [[1, "5"], [2, "x"], [None, None]], keep_in=ROWS.store())

    assert [(2, False, "5"), (3, True, "x"), (None, True, None)] == [
        tuple(row.values()) for row in found
    ]


def test_rows_have_the_same_results_before_and_after_spark_generates_code_for_them() -> None:
    program = ROWS.program(
        "n BIGINT, s STRING", [["n + 1 AS next", "upper(s) AS s"]], ["next", "s"]
    )

    found = ROWS.run(program, [[n, f"x{n}"] for n in range(9_000)], keep_in=ROWS.store())

    assert [(n + 1, f"X{n}") for n in range(9_000)] == [(row["next"], row["s"]) for row in found]


def test_values_are_those_of_the_code_that_the_job_runs() -> None:
    # Without generated code, Spark also evaluates what follows a null.
    steps = [
        ["CASE WHEN s <> '' THEN try_eval(struct(concat(n, cast(s AS INT)) AS v)) END AS tried"]
    ]
    program = ROWS.program("n BIGINT, s STRING", [*steps, ["tried IS NULL AS fails"]], ["fails"])

    found = ROWS.run(program, [[None, "x"], [1, "x"]], keep_in=ROWS.store())

    assert [False, True] == [row["fails"] for row in found]


def test_encoded_values_are_equal_where_a_join_takes_them_for_equal() -> None:
    texts = ["0.0", "-0.0", "NaN", "-NaN", "1.0", None]
    columns = [
        "cast(s AS DOUBLE) AS d",
        "array(cast(s AS DOUBLE)) AS a",
        "struct(s, cast(s AS FLOAT) AS f) AS c",
    ]
    program = ROWS.program("s STRING", [columns], [], ["d", "a", "c"])

    found = ROWS.run(program, [[text] for text in texts], keep_in=ROWS.store())

    numbers, arrays, structs = ([row[name] for row in found] for name in ("d", "a", "c"))
    assert numbers[0] == numbers[1]
    assert numbers[2] == numbers[3]
    assert 4 == len(set(numbers))
    assert arrays[0] == arrays[1] != arrays[4]
    assert 6 == len(set(structs))
    assert (None, False) == (numbers[5], structs[5] is None)


def test_pairs_are_read_from_two_stores_and_none_is_a_row_of_nulls() -> None:
    program = ROWS.program("n BIGINT", [["n AS left_n", "n > 1 AS big"]], ["big"])
    other = ROWS.program("m BIGINT", [["m AS right_m", "m > 1 AS big"]], ["big"])
    both = ROWS.program((program, other), [["left_n * right_m AS product"]], ["product"])
    stores = (ROWS.store(), ROWS.store())
    ROWS.run(program, [[2], [3]], keep_in=stores[0])
    ROWS.run(other, [[5]], keep_in=stores[1])

    found = ROWS.run_pairs(both, [(1, 0), (0, 0), (1, None)], stores)

    assert [15, 10, None] == [row["product"] for row in found]


def test_expression_that_fails_is_an_error_with_the_message_of_spark() -> None:
    program = ROWS.program("s STRING", [["cast(s AS BIGINT) AS n"]], ["n"])

    with pytest.raises(
        EvaluationError, match="The value 'x' of the type \"STRING\" cannot be cast"
    ):
        ROWS.run(program, [["x"]], keep_in=ROWS.store())


def test_question_about_rows_that_the_process_has_lost_has_the_cause() -> None:
    """Another thread may have asked what ended the process; the next question starts another."""

    def ask(question: Mapping[str, Any]) -> Mapping[str, Any]:
        if "keep" in question:
            raise CostError("Spark needed more than 2048 MB of memory")
        return {"rows": [[1]]}

    rows = SqlRows(ask)
    program, stores = rows.program("n BIGINT", [["n"]], ["n"]), (rows.store(), rows.store())
    with pytest.raises(CostError):
        rows.run(program, [[1]], keep_in=stores[0])

    with pytest.raises(CostError, match="2048 MB of memory"):
        rows.run_pairs(program, [(0, 0)], stores)
    for store in stores:
        rows.drop(store)
    new = (rows.store(), rows.store())
    assert [{"n": 1}] == rows.run_pairs(program, [(0, 0)], new)
