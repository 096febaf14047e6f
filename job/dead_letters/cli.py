"""What `streamjoin dead-letters list` and `replay` do, from a plan to lines of text."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from job.dead_letters.headers import DeadLetter
from job.dead_letters.replay import letters, replayed
from job.errors import RequestError
from job.instants import from_epoch_ms, utc_text
from job.kafka.security import KafkaAccess, kafka_access
from job.plan.plan import JoinPlan
from job.protocol.reasons import DEAD_LETTER_REASONS, RESULT_REASONS

REASONS = tuple(dict.fromkeys((*DEAD_LETTER_REASONS, *RESULT_REASONS)))


@dataclass(frozen=True)
class Wanted:
    """Which letters; None: all."""

    side: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        if self.reason is not None and self.reason not in REASONS:
            raise RequestError(f"{self.reason} is no reason: there are {', '.join(REASONS)}")

    def takes(self, letter: DeadLetter) -> bool:
        return self.side in {None, letter.side} and self.reason in {None, letter.reason}


def listed(plan: JoinPlan, wanted: Wanted, limit: int | None) -> Iterator[str]:
    """A line for each letter that was not put back, and one that counts them."""
    topic, access = _topic(plan), kafka_access(plan.bootstrap_servers, plan.security)
    count = 0
    for letter in islice(_found(access, plan, topic, wanted), limit):
        count += 1
        yield _line(letter)
    yield f"{count} in {topic}" + (", and perhaps more" if count == limit else "")


def put_back(plan: JoinPlan, wanted: Wanted, *, dry_run: bool) -> Iterator[str]:
    """A line for each letter that is put back, or would be; and what cannot be."""
    topic, access = _topic(plan), kafka_access(plan.bootstrap_servers, plan.security)
    found = _found(access, plan, topic, wanted)
    lines: list[str] = []

    def those_that_can_be() -> Iterator[DeadLetter]:
        for letter in found:
            if not letter.can_be_replayed:
                lines.append(f"left: {_line(letter)}")
            elif letter.topic != _source(plan, letter.side):
                lines.append(f"left, of a topic that is not read any more: {_line(letter)}")
            else:
                lines.append(_line(letter))
                yield letter

    if dry_run:
        count = sum(1 for _ in those_that_can_be())
        yield from lines
        yield f"{count} would be put back"
        return
    count = replayed(access, plan.name, topic, those_that_can_be())
    yield from lines
    yield f"{count} put back"


def _found(access: KafkaAccess, plan: JoinPlan, topic: str, wanted: Wanted) -> Iterator[DeadLetter]:
    return (
        letter
        for letter in letters(access, topic)
        if letter.query == plan.name and wanted.takes(letter)
    )


def _topic(plan: JoinPlan) -> str:
    if plan.dead_letter is None:
        raise RequestError("names no dead_letter topic")
    return plan.dead_letter.topic


def _source(plan: JoinPlan, side: str) -> str:
    return plan.side("left" if side == "left" else "right").topic


def _line(letter: DeadLetter) -> str:
    at = "-"
    if letter.timestamp_ms is not None:
        at = utc_text(from_epoch_ms(letter.timestamp_ms))
    # What a producer wrote may hold anything, and is shown on a terminal.
    message = "".join(char if char.isprintable() else "�" for char in letter.message)
    place = f"{letter.topic}/{letter.partition}/{letter.offset}"
    return f"{place}  {at}  {letter.side} {letter.reason}: {message}"
