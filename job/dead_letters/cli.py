"""`streamjoin dead-letters list` and `replay`: from a plan to lines of text."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from job.dead_letters.headers import LATE, VALUE_TOO_LARGE, DeadLetter
from job.dead_letters.replay import Replayed, letters, replay
from job.dead_letters.shown import BYTES_MAX, shown, text_of
from job.errors import RequestError
from job.instants import time_text
from job.kafka.security import KafkaAccess, kafka_access
from job.plan.plan import JoinPlan
from job.plan.result_id import ID_HEADER, places
from job.protocol.reasons import DEAD_LETTER_REASONS, RESULT_REASONS
from job.redaction import Redaction
from job.spec.source_topics import SourceTopics

REASONS = tuple(dict.fromkeys((*DEAD_LETTER_REASONS, *RESULT_REASONS)))
_LETTERS_AT_ONCE = 1_000

Failures = Callable[[Sequence[DeadLetter]], Sequence[str | None]]
"""For each letter, why its record is bad by the spec. None: it is readable."""


@dataclass(frozen=True)
class Selection:
    """Letters to list or replay. None: any."""

    side: str | None = None
    reason: str | None = None
    key: str | None = None
    """Key of the record, as text."""

    def __post_init__(self) -> None:
        if self.reason is not None and self.reason not in REASONS:
            raise RequestError(f"unknown reason {self.reason}: use one of {', '.join(REASONS)}")

    def includes(self, letter: DeadLetter) -> bool:
        is_key = self.key is None or self.key.encode(errors="surrogateescape") == letter.key
        return is_key and self.side in {None, letter.side} and self.reason in {None, letter.reason}


def list_letters(
    plan: JoinPlan, selection: Selection, limit: int | None, *, as_json: bool = False
) -> Iterator[str]:
    """Two lines for each letter that was not replayed, then their number; or a JSON object for
    each letter."""
    topic, access = _topic(plan), _access(plan)
    redaction, count = Redaction(), 0
    redaction.add(access.secrets)
    for letter in islice(_select(access, plan, topic, selection), limit):
        count += 1
        if as_json:
            yield redaction.scrubbed(json.dumps(_as_json(letter)))
        else:
            yield redaction.scrubbed(_line(letter))
            content = f"key {shown(letter.key)}, value {_value(letter)}{_records(letter)}"
            yield redaction.scrubbed(f"    {content}")
    if not as_json:
        yield f"{count} in {topic}" + (" (limit reached)" if count == limit else "")


def replay_letters(
    plan: JoinPlan,
    selection: Selection,
    failures: Failures,
    *,
    unchecked: bool = False,
    dry_run: bool = False,
    confirm: Callable[[str], bool] = lambda _: True,
) -> Iterator[str]:
    """A line for each letter that is replayed, or would be, and for each that is not.

    A letter whose record would fail again is left out; with `unchecked` no record is evaluated.
    `confirm` is called with a question before the first record is written.
    """
    topic, access = _topic(plan), _access(plan)
    replayed: set[str] = set()
    failing = late = 0
    for some in _batches(_select(access, plan, topic, selection)):
        readable = [] if unchecked else [it for it in some if _obstacle(plan, it) is None]
        reasons = dict(zip((each.place for each in readable), failures(readable), strict=True))
        for letter in some:
            obstacle, fails = _obstacle(plan, letter), reasons.get(letter.place)
            failing += fails is not None
            if obstacle is not None:
                yield f"not replayed, {obstacle}: {_line(letter)}"
            elif fails is not None:
                yield f"not replayed, would fail again ({fails}): {_line(letter)}"
            else:
                replayed.add(letter.place)
                late += letter.reason == LATE
                yield _line(letter)
    if failing:
        yield (
            f"{failing} would fail again by this spec: fix the spec, or replay them, too, with "
            "--all"
        )
    if late:
        yield (
            f"{late} of them {'was' if late == 1 else 'were'} late, and will be late again: the "
            "watermark of a query does not decrease. Only a query that was reset since, or a "
            "spec with another `event_time`, can join them"
        )
    if dry_run:
        again = f", and {late} of these would be late again" if late else ""
        yield f"{len(replayed)} would be replayed{again}"
    elif not replayed:
        yield "0 replayed"
    elif not confirm(f"Replay {len(replayed)} of {topic}?"):
        yield "0 replayed: not confirmed"
    else:
        wanted = _select(access, plan, topic, selection)
        chosen = (letter for letter in wanted if letter.place in replayed)
        yield _summary(replay(access, plan.name, topic, chosen))


def _obstacle(plan: JoinPlan, letter: DeadLetter) -> str | None:
    """Why the letter cannot be replayed. None: it can be."""
    if not letter.can_be_replayed:
        return "incomplete or a result"
    if not _source(plan, letter.side).matches(letter.topic):
        return "from a topic that the join does not read"
    return None


def _summary(replayed: Replayed) -> str:
    if not replayed.count:
        return "0 replayed"
    if replayed.hidden_in:
        return (
            f"{replayed.count} replayed: committed, but readers of committed records cannot read "
            f"all of {', '.join(replayed.hidden_in)} yet, for example because of an open "
            "transaction of another producer. The query reads the records afterwards"
        )
    return (
        f"{replayed.count} replayed: readers of committed records can read them. The query reads "
        "them in its next batches. `late_rows` and `bad_records` of GET /v1/query count the "
        "records that are late or fail again"
    )


def _select(
    access: KafkaAccess, plan: JoinPlan, topic: str, selection: Selection
) -> Iterator[DeadLetter]:
    return (
        letter
        for letter in letters(access, topic)
        if letter.query == plan.name and selection.includes(letter)
    )


def _batches(selected: Iterator[DeadLetter]) -> Iterator[list[DeadLetter]]:
    while some := list(islice(selected, _LETTERS_AT_ONCE)):
        yield some


def _access(plan: JoinPlan) -> KafkaAccess:
    return kafka_access(plan.bootstrap_servers, plan.security)


def _topic(plan: JoinPlan) -> str:
    if plan.dead_letter is None:
        raise RequestError(
            "dead_letter.topic is not set in the spec, so bad records and late rows are only "
            "counted. `streamjoin explain SPEC --key KEY` names those of a key that Kafka still has"
        )
    return plan.dead_letter.topic


def _source(plan: JoinPlan, side: str) -> SourceTopics:
    return plan.side("left" if side == "left" else "right").topics


def _line(letter: DeadLetter) -> str:
    # A value may contain control characters, and the message is shown on a terminal.
    message = "".join(char if char.isprintable() else "�" for char in letter.message)
    place = f"{letter.topic}/{letter.partition}/{letter.offset}"
    return f"{place}  {_time(letter) or '-'}  {letter.side} {letter.reason}: {message}"


def _time(letter: DeadLetter) -> str | None:
    return None if letter.timestamp_ms is None else time_text(letter.timestamp_ms)


def _value(letter: DeadLetter) -> str:
    if letter.is_whole:
        return shown(letter.value)
    if letter.side == "output" and letter.reason != VALUE_TOO_LARGE:
        return "not in the dead letter: the result was not computed"
    return "not in the dead letter: it was too large"


def _records(letter: DeadLetter) -> str:
    """The records of a result. Empty for a letter of a record, which has its place."""
    if letter.result_id is None:
        return ""
    records = places(letter.result_id) or {}
    named = [f"{side} record {record}" for side, record in records.items()]
    return f", {', '.join(named)}, {ID_HEADER} {shown(letter.result_id.encode())}"


def _as_json(letter: DeadLetter) -> dict[str, object]:
    """Key and value as text, or in hexadecimal digits if they are not text."""
    value = letter.value
    contents = {"key": letter.key, "value": None if value is None else value[:BYTES_MAX]}
    texts: dict[str, str | None] = {}
    for name, content in contents.items():
        text = None if content is None else text_of(content)
        texts[name] = text
        texts[f"{name}_hex"] = None if content is None or text is not None else content.hex()
    return {
        "dead_letter": letter.place,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp": _time(letter),
        "side": letter.side,
        "reason": letter.reason,
        "message": letter.message,
        **texts,
        "value_bytes": None if value is None else len(value),
        "is_whole": letter.is_whole,
        "result_id": letter.result_id,
    }
