"""Types that lose nothing of a JSON value."""

import json

import pytest

from job.proposal.columns import quoted_names, table_of
from job.semantics.input_records import InputRecord
from job.sql.types import BIGINT
from tests.sql_worker import SQL
from tests.unit.proposal.samples import records


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ("1 2 null", "BIGINT"),
        ("1 2.5", "DOUBLE"),
        ("9223372036854775807", "BIGINT"),
        ("9223372036854775808", "STRING"),
        ("0.1", "DOUBLE"),
        ("1234567890.12345678901", "STRING"),
        ("true false", "BOOLEAN"),
        ('true "x"', "STRING"),
        ('1 "x"', "STRING"),
        ("null", "STRING"),
        ('[1,2] [] [null]', "ARRAY<BIGINT>"),
        ('[1,"x"]', "ARRAY<STRING>"),
        ("[] []", "ARRAY<STRING>"),
        ('{"a":1} {"b":"x"}', "STRUCT<a: BIGINT, b: STRING>"),
        ('{"a":{"b":[{"c":1.5}]}}', "STRUCT<a: STRUCT<b: ARRAY<STRUCT<c: DOUBLE>>>>"),
        ('{"a":1} [1]', "STRING"),
        ("{}", "STRING"),
        ('{"a":1,"A":2}', "STRING"),
        ('{"order by":1}', "STRUCT<`order by`: BIGINT>"),
        ('{"a`b":1}', "STRING"),
    ],
)  # fmt: skip
def test_narrowest_type_that_reads_every_value(values: str, kind: str) -> None:
    sample = records(*(f'{{"c": {value}}}' for value in values.split(" ")))
    if '"order by"' in values:
        sample = records(f'{{"c": {values}}}')
    assert {"c": kind} == {name: str(each) for name, each in table_of(sample).columns.items()}


def test_columns_are_those_of_all_objects_and_other_values_are_left_out() -> None:
    sample = records('{"a": 1}', "[1]", "no json", '{"b": 2, "a": 3}', '{"a": 1}{')
    sample.append(InputRecord(None, 5))
    table = table_of(sample)
    assert {"a": BIGINT, "b": BIGINT} == table.columns
    assert [0, 3] == [record.offset for record in table.records]


def test_names_that_no_column_can_have_are_left_out_and_keywords_are_quoted() -> None:
    names = [
        "id",
        "ID",
        "record_offset",
        "a`b",
        "${HOME}",
        "x\ny",
        "select",
        "two words",
        "ß",
        "NOT",
    ]
    names += [" ", "long" * 64]
    table = table_of(records(json.dumps(dict.fromkeys(names, 1))))
    assert ["ID", "record_offset", "a`b", "${HOME}", "x\ny", *names[-2:]] == table.left_out
    quoted = quoted_names(table.columns, SQL)
    assert ["id", "select", "`two words`", "`ß`", "NOT"] == list(quoted.values())
