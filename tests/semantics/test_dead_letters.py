"""Dead letters and their headers, on Spark without a broker."""

import json
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from job.dataflow.sides import decoded, side_rows
from job.dead_letters import sql
from job.dead_letters.headers import DeadLetter, dead_letter
from job.instants import to_epoch_ms
from tests.unit.specs import plan

T0 = 1_700_000_000_000
RECORDS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
LETTERS: dict[str, Any] = {
    "on_bad_record": None,
    "dead_letter": {"topic": "dead"},
    "on_null_key": "dead_letter",
    "left__schema": "k STRING, t TIMESTAMP, `it's` BIGINT, seen TIMESTAMP, deep STRUCT<x: INT>",
    "left__key": ["k", "`it's` + 1"],
    "left__event_time": "t",
    "left__filter": "k IS NULL OR k <> 'dropped'",
    "right__key": ["user", "ad_id"],
    "output__columns": {"k": "left.k"},
}


def letters(
    spark: SparkSession,
    records: list[tuple[bytes | None, bytes | None, Any]],
    *,
    bytes_max: int = 1_000_000,
    late: bool = False,
    **changes: Any,
) -> list[DeadLetter]:
    """Dead letters of left records (key, value, headers) at offsets 0, 1, …"""
    made = plan(**{**LETTERS, **changes})
    at = datetime.fromtimestamp(T0 / 1000, UTC)
    rows = [(key, value, "t", 0, n, at, headers) for n, (key, value, headers) in enumerate(records)]
    frame = decoded(spark.createDataFrame(rows, RECORDS), made.left, None, keep=sql.KEPT)
    found = (
        frame.withColumn("is_late", F.lit(late))
        .withColumn("late_watermark", F.lit("2023-11-14T22:13:20.001Z"))
        .selectExpr(*sql.with_reason(made, made.left))
        .where("dead_reason IS NOT NULL")
        .selectExpr("*", f"{sql.message(made.left)} AS dead_message")
        .selectExpr(*sql.letters(made, made.left, bytes_max=bytes_max))
    )
    read = [
        dead_letter("", row.key, row.value, [(h.key, h.value) for h in row.headers])
        for row in found.collect()
    ]
    return [letter for letter in read if letter is not None]


def value(**fields: Any) -> bytes:
    return json.dumps({"k": "a", "it's": 1, "t": T0, **fields}).encode()


def test_good_record_is_no_letter_and_a_bad_one_keeps_its_bytes(spark: SparkSession) -> None:
    headers = [("h", b"\xff"), ("h", None)]
    records = [(b"\xff", b"\xfe", headers), (b"k", value(), headers), (None, None, None)]

    malformed, tombstone = letters(spark, records)

    assert (b"\xff", b"\xfe", headers) == (
        malformed.key,
        malformed.value,
        list(malformed.original_headers),
    )
    assert (0, T0, "left", "malformed_json") == (
        malformed.offset,
        malformed.timestamp_ms,
        malformed.side,
        malformed.reason,
    )
    assert (None, None, []) == (tombstone.key, tombstone.value, list(tombstone.original_headers))
    assert (2, "tombstone", True) == (tombstone.offset, tombstone.reason, tombstone.is_whole)


@pytest.mark.parametrize(
    ("content", "remedy"),
    [
        (None, "set `left.on_tombstone: drop`, `on_bad_record: drop` or a dead_letter topic"),
        (b"x", "set `on_bad_record: drop` or a dead_letter topic"),
    ],
)
def test_query_that_fails_at_a_record_without_a_value_names_the_setting_that_drops_it(
    spark: SparkSession, content: bytes | None, remedy: str
) -> None:
    made = plan(on_bad_record="fail")
    row = (None, content, "t", 0, 0, datetime.fromtimestamp(T0 / 1000, UTC), None)
    records = spark.createDataFrame([row], RECORDS)

    with pytest.raises(PySparkException) as failure:
        side_rows(records, made.left, made, None, letter_bytes_max=None).collect()

    assert f"To continue, {remedy}, then start again" in str(failure.value)


def test_null_of_a_null_safe_pair_is_no_letter(spark: SparkSession) -> None:
    records = [(None, value(**{name: None}), None) for name in ("k", "it's")]

    (letter,) = letters(spark, records, join__null_safe=[True, False])
    unread = letters(spark, [*records, (None, None, None)], join__null_safe=[True, True])

    assert "null in the key: `it's` + 1" == letter.message
    assert ["tombstone"] == [each.reason for each in unread]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"it's": "one"}, "not of the declared type: it's BIGINT"),
        ({"it's": "one", "seen": "then"}, "not of the declared type: it's BIGINT, seen TIMESTAMP"),
        ({"deep": [1]}, "not of the declared type: deep STRUCT<x: INT>"),
        ({"t": None}, "field t is missing or null"),
        (
            {"t": T0 + 9_000_000},
            f"field t is more than 1 hour ahead of the record: {T0 + 9_000_000}",
        ),
        ({"k": None}, "null in the key: k"),
        ({"k": None, "it's": None}, "null in the key: k, `it's` + 1"),
    ],
)
def test_message_names_the_field_and_what_was_expected(
    spark: SparkSession, fields: dict[str, Any], said: str
) -> None:
    (letter,) = letters(spark, [(None, value(**fields), None)])

    assert said == letter.message


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"left__filter": "6 / `it's` > 1"},
            "left.filter cannot be evaluated on this record: 6",
        ),
        (
            {"left__key": ["k", "6 div `it's`"]},
            "left.key[1] cannot be evaluated on this record: 6",
        ),
        (
            {"join__condition": "left.k <> right.user and 6 / left.`it's` > 1"},
            "join.condition cannot be evaluated on this record: ",
        ),
    ],
)
def test_message_names_the_field_that_cannot_be_evaluated(
    spark: SparkSession, changes: dict[str, Any], said: str
) -> None:
    records = [(None, value(**{"it's": number}), None) for number in (0, 1, 2)]

    (letter,) = letters(spark, records, **changes)

    assert ("expression_failed", 0, True) == (letter.reason, letter.offset, letter.is_whole)
    assert letter.message.startswith(said)


def test_row_that_the_filter_drops_is_no_letter_for_its_null_key(spark: SparkSession) -> None:
    records = [(None, value(k="dropped", **{"it's": None}), None)]

    assert [] == letters(spark, records)


def test_null_keys_are_letters_only_if_the_spec_sets_it(spark: SparkSession) -> None:
    assert [] == letters(spark, [(None, value(k=None), None)], on_null_key="pass")


@pytest.mark.parametrize("written", [T0, "2023-11-14T23:13:20+01:00"])
def test_message_of_a_late_row_names_time_and_watermark_in_one_format(
    spark: SparkSession, written: object
) -> None:
    (letter,) = letters(spark, [(None, value(t=written), None)], late=True)

    assert "late" == letter.reason
    assert (
        "field t is 2023-11-14T22:13:20.000Z, not past the watermark 2023-11-14T22:13:20.001Z"
    ) == letter.message
    assert T0 + 1 == to_epoch_ms(cast("datetime", sql.late_watermark(letter.message)))


def test_letter_that_is_too_large_leaves_out_its_value_and_if_need_be_the_rest(
    spark: SparkSession,
) -> None:
    records = [
        (b"k", b"x" * 5_000, [("h", b"v")]),
        (b"k" * 5_000, b"x", [("h", b"v")]),
        (b"k", b"x", [("h", b"v" * 5_000)]),
    ]

    found = letters(spark, records, bytes_max=4_000)

    shown = [(one.key, one.value, len(one.original_headers), one.is_whole) for one in found]
    assert [(b"k", None, 1, False), (None, None, 0, False), (None, None, 0, False)] == shown


@pytest.mark.parametrize("part", ["key", "value"])
def test_record_is_kept_up_to_exactly_the_limit(spark: SparkSession, part: str) -> None:
    """A record whose letter is a byte smaller than the topic accepts, as large, and a byte
    larger."""
    (shortest,) = letters(spark, [(b"", b"", None)])
    added = len(shortest.message.encode()) + sql._OVERHEAD_BYTES
    texts = [b"x" * (16_384 - added + more) for more in (-1, 0, 1)]
    records = [(text, b"", None) if part == "key" else (b"", text, None) for text in texts]

    found = letters(spark, records, bytes_max=16_384)
    assert [*texts[:2], None] == [getattr(letter, part) for letter in found]


def test_reserved_header_of_the_producer_is_renamed_and_its_new_name_is_counted(
    spark: SparkSession,
) -> None:
    headers = [("__streamjoin.errors.omitted.bytes", b"5"), ("__streamjoin.original.x", b"x")]
    (letter,) = letters(spark, [(b"k", b"x", headers)])

    assert letter.is_whole
    assert headers == list(letter.original_headers)

    # 100 headers fit with the names of the producer, but not with the prefix.
    many = [("__streamjoin.", b"")] * 100
    (letter,) = letters(spark, [(b"k", b"x", many)], bytes_max=4_500)
    assert [] == list(letter.original_headers)
    (letter,) = letters(spark, [(b"k", b"x", [("x_streamjoin.", b"")] * 100)], bytes_max=4_500)
    assert 100 == len(letter.original_headers)
