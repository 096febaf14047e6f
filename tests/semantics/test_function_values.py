"""The functions of a simulation have the values that they have in the job."""

import re
from collections.abc import Iterator

from pyspark.sql import SparkSession

from tests.semantics.function_values import compared
from tests.semantics.test_sql_worker import NO_EXPRESSION, REFUSED_EXAMPLES
from tests.sql_worker import WORKER, allowed_functions

# Casts, which have no example. tests/semantics/expression_differential.py compares them.
CASTS = {
    *("bigint", "binary", "boolean", "date", "decimal", "double", "float", "int", "smallint"),
    *("string", "timestamp", "tinyint"),
}
WITHOUT_VALUE = {
    *CASTS,
    "raise_error",  # fails on each row
    "unix_nanos",  # of types with nanoseconds, which no column has
}


def _examples() -> Iterator[tuple[str, str]]:
    """Functions and their examples."""
    allowed = set(allowed_functions())
    for function in WORKER.ask({"kind": "functions"})["functions"]:
        for text in re.findall(r"SELECT (.*?);", function["examples"], re.DOTALL):
            sql = text.replace("_FUNC_", function["name"])
            is_used = function["name"] in allowed and sql not in REFUSED_EXAMPLES
            if is_used and not NO_EXPRESSION.search(sql):
                yield function["name"], sql


def test_functions_have_the_same_values_in_a_simulation_and_in_spark(spark: SparkSession) -> None:
    examples = list(_examples())
    result = compared(spark, list(dict.fromkeys(sql for _, sql in examples)))

    assert [] == result.differences
    with_value = {name for name, sql in examples if sql in result.with_values}
    assert WITHOUT_VALUE == {*allowed_functions()} - with_value
    assert result.counts["values"] > 4_000
    assert result.counts["failures"] > 400
    assert result.counts["errors"] > 100
