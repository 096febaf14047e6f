"""`streamjoin dead-letters list` and `replay`: from a plan to lines of text."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from job.dead_letters.headers import DeadLetter
from job.dead_letters.replay import Replayed, letters, replay
from job.errors import RequestError
from job.instants import from_epoch_ms, utc_text
from job.kafka.security import KafkaAccess, kafka_access
from job.plan.plan import JoinPlan
from job.protocol.reasons import DEAD_LETTER_REASONS, RESULT_REASONS
from job.spec.source_topics import SourceTopics

REASONS = tuple(dict.fromkeys((*DEAD_LETTER_REASONS, *RESULT_REASONS)))


@dataclass(frozen=True)
class Selection:
    """Letters to list or replay. None: any."""

    side: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        if self.reason is not None and self.reason not in REASONS:
            raise RequestError(f"unknown reason {self.reason}: use one of {', '.join(REASONS)}")

    def includes(self, letter: DeadLetter) -> bool:
        return self.side in {None, letter.side} and self.reason in {None, letter.reason}


def list_letters(plan: JoinPlan, selection: Selection, limit: int | None) -> Iterator[str]:
    """A line for each letter that was not replayed, then their number."""
    topic, access = _topic(plan), kafka_access(plan.bootstrap_servers, plan.security)
    count = 0
    for letter in islice(_select(access, plan, topic, selection), limit):
        count += 1
        yield _line(letter)
    yield f"{count} in {topic}" + (" (limit reached)" if count == limit else "")


def replay_letters(plan: JoinPlan, selection: Selection, *, dry_run: bool) -> Iterator[str]:
    """A line for each letter that is replayed, or would be, and for each that cannot be."""
    topic, access = _topic(plan), kafka_access(plan.bootstrap_servers, plan.security)
    selected = _select(access, plan, topic, selection)
    lines: list[str] = []

    def replayable() -> Iterator[DeadLetter]:
        for letter in selected:
            if not letter.can_be_replayed:
                lines.append(f"not replayed, incomplete or a result: {_line(letter)}")
            elif not _source(plan, letter.side).matches(letter.topic):
                lines.append(
                    f"not replayed, from a topic that the join does not read: {_line(letter)}"
                )
            else:
                lines.append(_line(letter))
                yield letter

    if dry_run:
        count = sum(1 for _ in replayable())
        yield from lines
        yield f"{count} would be replayed"
        return
    replayed = replay(access, plan.name, topic, replayable())
    yield from lines
    yield _summary(replayed)


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


def _topic(plan: JoinPlan) -> str:
    if plan.dead_letter is None:
        raise RequestError("dead_letter.topic is not set in the spec")
    return plan.dead_letter.topic


def _source(plan: JoinPlan, side: str) -> SourceTopics:
    return plan.side("left" if side == "left" else "right").topics


def _line(letter: DeadLetter) -> str:
    at = "-"
    if letter.timestamp_ms is not None:
        at = utc_text(from_epoch_ms(letter.timestamp_ms))
    # A value may contain control characters, and the message is shown on a terminal.
    message = "".join(char if char.isprintable() else "�" for char in letter.message)
    place = f"{letter.topic}/{letter.partition}/{letter.offset}"
    return f"{place}  {at}  {letter.side} {letter.reason}: {message}"
