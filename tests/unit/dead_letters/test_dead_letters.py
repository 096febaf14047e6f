"""Records of the dead-letter topic as letters, and as lines of the commands."""

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from job.check.replayed import ReplayCheck
from job.dead_letters import cli
from job.dead_letters import headers as names
from job.dead_letters.cli import Selection, _line, list_letters, replay_letters
from job.dead_letters.headers import DeadLetter, dead_letter, replayed_place
from job.dead_letters.replay import Replayed, partition_of
from job.dead_letters.shown import shown
from job.errors import RequestError
from job.kafka.preflight import TopicUse, _topic_uses
from tests.sql_worker import ROWS
from tests.unit.specs import plan

OURS = {
    names.TOPIC: b"clicks",
    names.PARTITION: b"3",
    names.OFFSET: b"17",
    names.TIMESTAMP: b"1700000000123",
    names.SIDE: b"right",
    names.REASON: b"malformed_json",
    names.MESSAGE: b"the value is not one JSON object in UTF-8",
    names.QUERY: b"tested",
}


def letter(**changed: Any) -> DeadLetter:
    headers = {**OURS, **changed.pop("ours", {})}
    pairs = [("trace", b"t"), *headers.items(), ("trace", None)]
    made = dead_letter("dead/0/5", b"key", b"\xff", pairs)
    assert made is not None
    return made


def test_headers_of_the_original_record_are_not_those_of_the_letter() -> None:
    made = letter()

    assert (b"key", b"\xff") == (made.key, made.value)
    assert [("trace", b"t"), ("trace", None)] == list(made.original_headers)
    assert ("clicks", 3, 17, 1_700_000_000_123) == (
        made.topic,
        made.partition,
        made.offset,
        made.timestamp_ms,
    )
    assert ("right", "malformed_json", "tested") == (made.side, made.reason, made.query)


def test_record_of_somebody_else_is_no_letter() -> None:
    assert dead_letter("dead/0/0", None, b"{}", [("trace", b"t")]) is None
    assert dead_letter("dead/0/0", None, None, [(names.REPLAYED, b"dead/0/5")]) is None
    forged = {**OURS, names.PARTITION: b"none"}
    assert dead_letter("dead/0/0", None, None, [*forged.items()]) is None


def test_headers_of_the_producer_are_not_taken_for_those_of_the_job() -> None:
    written_by_the_producer = [
        (names.OMITTED_BYTES, b"5"),
        (f"{names.ORIGINAL}{names.TOPIC}", b"elsewhere"),
        (names.REPLAYED, b"dead/0/5"),
    ]
    made = dead_letter("dead/0/5", None, b"", [*written_by_the_producer, *OURS.items()])

    assert made is not None
    assert made.can_be_replayed
    assert "clicks" == made.topic
    assert [
        (names.OMITTED_BYTES, b"5"),
        (names.TOPIC, b"elsewhere"),
        (names.REPLAYED, b"dead/0/5"),
    ] == list(made.original_headers)


@pytest.mark.parametrize(
    ("value", "headers", "place"),
    [
        (None, [(names.REPLAYED, b"dead/0/5")], "dead/0/5"),
        (None, [(names.REPLAYED, b"\xff")], "\N{REPLACEMENT CHARACTER}"),
        (None, [(names.REPLAYED, b"dead/0/5"), *OURS.items()], None),
        (b"", [(names.REPLAYED, b"dead/0/5")], None),
        (None, [], None),
    ],
)
def test_only_a_note_marks_a_letter_as_replayed(
    value: bytes | None, headers: list[tuple[str, bytes | None]], place: str | None
) -> None:
    assert place == replayed_place(None, value, headers)


def test_replayed_record_has_only_the_header_of_its_replay() -> None:
    assert [("trace", b"t"), ("trace", None), (names.REPLAYED_FROM, b"dead/0/5")] == list(
        letter().replayed_headers
    )


@pytest.mark.parametrize(
    ("ours", "can_be"),
    [
        ({}, True),
        ({names.SIDE: b"output"}, False),
        ({names.OMITTED_BYTES: b"2000000"}, False),
    ],
)
def test_result_or_letter_without_its_value_cannot_be_replayed(
    ours: dict[str, bytes], *, can_be: bool
) -> None:
    assert can_be is letter(ours=ours).can_be_replayed


def test_letters_are_wanted_by_side_and_reason() -> None:
    assert Selection().includes(letter())
    assert Selection("right", "malformed_json").includes(letter())
    assert not Selection("left").includes(letter())
    assert not Selection(reason="late").includes(letter())
    assert Selection(key="key").includes(letter())
    assert not Selection(key="ke").includes(letter())
    with pytest.raises(RequestError, match="tombstone, malformed_json"):
        Selection(reason="broken")


def test_line_shows_no_control_characters_of_a_record() -> None:
    made = letter(ours={names.MESSAGE: b"holds \x1b[2J and \xff"})

    assert "clicks/3/17  2023-11-14T22:13:20.123Z  right malformed_json: holds �[2J and �" == _line(
        made
    )


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "null"),
        (b"", ""),
        (b'{"a":\n"\x1b[2J\xc3\xa4"}', r'{"a":\n"\x1b[2Jä"}'),
        (b"\0\0\0\0\7abc", "0x0000000007616263"),
        (b"\xff\xfe", "0xfffe"),
        # 120 bytes end within the second byte of a character.
        (b"x" * 119 + "ä".encode() + b"y", "x" * 119 + "… (122 bytes)"),
    ],
)
def test_first_bytes_are_shown_as_text_or_as_digits(content: bytes | None, text: str) -> None:
    assert text == shown(content)


OF_JOIN: dict[str, Any] = {"on_bad_record": None, "dead_letter": {"topic": "dead"}}


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[DeadLetter]:
    """The letters in the topic. A replay removes the replayed ones."""
    topic: list[DeadLetter] = []

    def replay(_: object, __: str, ___: str, wanted: Iterator[DeadLetter]) -> Replayed:
        replayed = list(wanted)
        topic[:] = [each for each in topic if each not in replayed]
        return Replayed(len(replayed), ())

    monkeypatch.setattr(cli, "letters", lambda *_: iter(topic))
    monkeypatch.setattr(cli, "replay", replay)
    return topic


def in_topic(number: int, key: bytes | None, value: bytes | None, **ours: bytes) -> DeadLetter:
    pairs = [*{**OURS, **{getattr(names, n): v for n, v in ours.items()}}.items()]
    made = dead_letter(f"dead/0/{number}", key, value, pairs)
    assert made is not None
    return made


def test_list_shows_key_and_value_and_as_json_their_digits(listed: list[DeadLetter]) -> None:
    listed += [in_topic(0, b"k", b"garbage"), in_topic(1, None, b"\xff", OMITTED_BYTES=b"9")]

    lines = list(list_letters(plan(**OF_JOIN), Selection(), None))
    [first, _] = map(json.loads, list_letters(plan(**OF_JOIN), Selection(), None, as_json=True))

    assert "    key k, value garbage" == lines[1]
    assert "    key null, value not in the dead letter: it was too large" == lines[3]
    assert "2 in dead" == lines[4]
    assert ("k", None, "garbage", None, 7, True) == tuple(
        first[name] for name in ("key", "key_hex", "value", "value_hex", "value_bytes", "is_whole")
    )


def test_list_shows_both_records_of_a_result(listed: list[DeadLetter]) -> None:
    headers = [
        *{**OURS, names.SIDE: b"output", names.OMITTED_BYTES: b"0"}.items(),
        ("streamjoin-id", b"impressions/0/17|clicks/2/5"),
    ]
    result, record = (dead_letter("dead/0/0", None, None, of) for of in (headers, [*OURS.items()]))
    assert result is not None
    assert record is not None
    listed += [result, record]

    lines = list(list_letters(plan(**OF_JOIN), Selection(), None))
    found = map(json.loads, list_letters(plan(**OF_JOIN), Selection(), None, as_json=True))

    assert lines[1].endswith(
        ", left record impressions/0/17, right record clicks/2/5, streamjoin-id "
        "impressions/0/17|clicks/2/5"
    )
    assert "streamjoin-id" not in lines[3]
    ids = ["impressions/0/17|clicks/2/5", None]
    assert ids == [each["result_id"] for each in found]


def test_replay_leaves_out_what_would_fail_again_by_the_present_spec(
    listed: list[DeadLetter],
) -> None:
    made = plan(**OF_JOIN)
    check = ReplayCheck(made, ROWS).failures
    good, bad, result = (
        in_topic(0, None, b'{"ad_id": 1, "clicked_at": 1700000000000}', REASON=b"schema_mismatch"),
        in_topic(1, None, b'{"ad_id": "one", "clicked_at": 1700000000000}'),
        in_topic(2, None, None, SIDE=b"output"),
    )
    questions: list[str] = []

    def refuse(question: str) -> bool:
        questions.append(question)
        return False

    listed += [good, bad, result]
    lines = list(replay_letters(made, Selection(), check, confirm=refuse))
    assert ["Replay 1 of dead?"] == questions
    assert _line(good) == lines[0]
    assert lines[1].startswith(
        "not replayed, would fail again (schema_mismatch: not of the declared type: ad_id BIGINT): "
    )
    assert lines[2].startswith("not replayed, incomplete or a result: ")
    assert lines[3].startswith("1 would fail again by this spec: ")
    assert "0 replayed: not confirmed" == lines[4]

    assert "1 replayed" == list(replay_letters(made, Selection(), check))[-1].partition(":")[0]
    assert [bad, result] == listed
    lines = list(replay_letters(made, Selection(), check, unchecked=True))
    assert _line(bad) == lines[0]
    assert [result] == listed


@pytest.mark.parametrize("dry_run", [False, True])
def test_replay_reports_the_rows_that_will_be_late_again(
    listed: list[DeadLetter], *, dry_run: bool
) -> None:
    value = b'{"ad_id": 1, "clicked_at": 1700000000000}'
    bad, late, incomplete = (
        in_topic(0, None, value),
        in_topic(1, None, value, REASON=b"late"),
        in_topic(2, None, None, REASON=b"late", OMITTED_BYTES=b"9"),
    )
    questions: list[str] = []

    def accept(question: str) -> bool:
        questions.append(question)
        return True

    def lines_of(*letters: DeadLetter) -> list[str]:
        listed[:] = letters
        replayed = replay_letters(
            *(plan(**OF_JOIN), Selection(), lambda letters: [None] * len(letters)),
            dry_run=dry_run,
            confirm=accept,
        )
        return list(replayed)

    *_, again, total = lines_of(bad, late, incomplete)
    assert again.startswith("1 of them was late, and will be late again: the watermark of a query")
    assert total.startswith(
        "2 would be replayed, and 1 of these would be late again" if dry_run else "2 replayed: "
    )
    *_, again, _ = lines_of(late, late)
    assert again.startswith("2 of them were late, and will be late again: the watermark of a query")
    assert not any("late again" in line for line in lines_of(bad))


def test_topic_must_be_there_and_writable_before_the_start() -> None:
    use = TopicUse("dead_letter.topic", "dead", ("Write",))

    assert use in _topic_uses(plan(on_bad_record=None, dead_letter={"topic": "dead"}))
    assert use not in _topic_uses(plan())


def test_replayed_record_goes_to_its_partition_unless_the_topic_has_fewer_now() -> None:
    """-1: the key chooses the partition."""
    letter: Any = SimpleNamespace(partition=2)
    assert [-1, 2, 2] == [partition_of(letter, count) for count in (2, 3, 4)]
