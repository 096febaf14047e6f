"""A Kafka broker as far as transactions go: epochs, open transactions, the last stable offset.

Written from Kafka's protocol, not from the code under test. Two steps are separate here that a
client sees as one: a transaction is decided, and its control record is in the log, which lets
readers pass. A request may arrive long after its client has given it up.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from job.delivery.commit_protocol import AbortedError, ProducerFencedError, UnavailableError

State = Literal["open", "committed", "aborted"]


@dataclass(eq=False)
class Transaction:
    state: State = "open"
    landed: bool = False
    """Whether its control records are written: readers no longer stop at its records."""


@dataclass(frozen=True, eq=False)
class Record:
    payload: Any
    transaction: Transaction


@dataclass(eq=False)
class _Coordinated:
    """The coordinator's state of one transactional id."""

    epoch: int = 0
    current: Transaction | None = None


@dataclass(frozen=True)
class Handle:
    """A producer's right to write, good until the next `init` of its id."""

    transactional_id: str
    epoch: int


@dataclass
class Log:
    records: list[Record] = field(default_factory=list)

    @property
    def last_stable_offset(self) -> int:
        undecided = (i for i, record in enumerate(self.records) if not record.transaction.landed)
        return next(undecided, len(self.records))

    def committed(self) -> list[Any]:
        """What a read_committed consumer gets."""
        return [
            record.payload
            for record in self.records[: self.last_stable_offset]
            if record.transaction.state == "committed"
        ]


class Broker:
    def __init__(self) -> None:
        self._ids: dict[str, _Coordinated] = {}
        self._delayed: list[tuple[Handle, State]] = []

    def init(self, transactional_id: str) -> Handle:
        known = self._ids.setdefault(transactional_id, _Coordinated())
        self._fence(known)
        return Handle(transactional_id, known.epoch)

    def produce(self, handle: Handle, log: Log, payload: Any) -> None:
        known = self._checked(handle)
        if known.current is None or known.current.state != "open":
            self._land(known)
            known.current = Transaction()
        log.records.append(Record(payload, known.current))

    def end(self, handle: Handle, state: State) -> None:
        known = self._checked(handle)
        if known.current is None:
            raise AbortedError("there is no transaction", retryable=True)
        if known.current.state == "open":
            known.current.state = state
        elif known.current.state != state:
            raise AbortedError(f"it is {known.current.state}", retryable=True)

    def delay(self, handle: Handle, state: State) -> None:
        """The request is on its way; it may arrive at any time, or never."""
        self._delayed.append((handle, state))

    def deliver_delayed(self, choice: int) -> None:
        if self._delayed:
            handle, state = self._delayed.pop(choice % len(self._delayed))
            known = self._ids[handle.transactional_id]
            # The request does not name the transaction of the epoch (before KIP-890).
            if known.epoch == handle.epoch and known.current and known.current.state == "open":
                known.current.state = state

    def write_control_records(self) -> None:
        """What was decided becomes visible to readers."""
        for known in self._ids.values():
            if known.current is not None and known.current.state != "open":
                self._land(known)

    def time_out(self, choice: int) -> None:
        """The coordinator aborts a transaction that takes too long, and fences its producer."""
        slow = [known for known in self._ids.values() if known.current]
        if slow:
            self._fence(slow[choice % len(slow)])

    def settle(self) -> None:
        for known in self._ids.values():
            self._fence(known)

    def _fence(self, known: _Coordinated) -> None:
        if known.current is not None and known.current.state == "open":
            known.current.state = "aborted"
        self._land(known)
        known.epoch += 1

    def _land(self, known: _Coordinated) -> None:
        if known.current is not None:
            known.current.landed = True
            known.current = None

    def _checked(self, handle: Handle) -> _Coordinated:
        known = self._ids[handle.transactional_id]
        if known.epoch != handle.epoch:
            raise ProducerFencedError(handle.transactional_id)
        return known


def read_to_the_end(log: Log) -> list[Any]:
    """As `committed`, but not content with less than what is in the log now."""
    if log.last_stable_offset < len(log.records):
        raise UnavailableError("an open transaction hides the end")
    return log.committed()
