"""The newest marker of a slot shows whether a micro-batch is delivered, or contradicts the
checkpoint."""

import pytest

from job.delivery.commit_protocol import NO_BATCH, Marker, TakenOverError
from tests.unit.delivery.interval_protocol import (
    Batch,
    DisagreementError,
    Opening,
    Slot,
    SlotContent,
    Step,
    deliver,
    opened,
)

NEVER = 2**63 - 1
"""As `since` of the slot of the dead letters in writer/transactions.py."""


def opening(batch_id: int, since: int = 0) -> Opening:
    return Opening(Batch(batch_id, f"f{batch_id}", since, "q"))


def marker(batch_id: int, fingerprint: str | None = None, query_id: str = "q") -> Marker:
    return Marker(batch_id, fingerprint or f"f{batch_id}", query_id)


@pytest.mark.parametrize(
    ("batch", "newest", "is_delivered"),
    [
        # Only some batches write dead letters.
        (opening(5, since=NEVER), None, False),
        (opening(5, since=NEVER), marker(2), False),
        (opening(5, since=NEVER), marker(5), True),
    ],
)
def test_marker_shows_whether_the_batch_is_delivered(
    batch: Opening, newest: Marker | None, *, is_delivered: bool
) -> None:
    assert is_delivered is opened(batch, SlotContent(newest)).is_delivered


GAP = "marker is missing (the commit topic "
NEWER = "but batch 6 was already delivered"
OTHER_INPUT = "from other input offsets"
REMEDIES = {
    GAP: "set another folder in `checkpoint`",
    NEWER: "--results-again`",
    OTHER_INPUT: "--results-again`",
}


@pytest.mark.parametrize(
    ("batch", "newest", "text", "found"),
    [
        (opening(5), None, GAP, "has no marker)"),
        (opening(5), marker(3), GAP, "ends with batch 3)"),
        (opening(5), marker(6), NEWER, ""),
        (opening(5, since=5), marker(6), NEWER, ""),
        (opening(5, since=NEVER), marker(6), NEWER, ""),
        (opening(5), marker(5, "other"), OTHER_INPUT, ""),
        (opening(0), marker(0, "other"), OTHER_INPUT, ""),
    ],
)
def test_marker_that_contradicts_the_checkpoint_is_refused_with_the_remedy(
    batch: Opening, newest: Marker | None, text: str, found: str
) -> None:
    with pytest.raises(DisagreementError) as refusal:
        opened(batch, SlotContent(newest))
    assert text + found in str(refusal.value)
    assert REMEDIES[text] in str(refusal.value)


@pytest.mark.parametrize("batch_id", [NO_BATCH, 4, 5, 6])
def test_marker_of_another_query_is_refused_whatever_its_batch(batch_id: int) -> None:
    foreign = SlotContent(marker(batch_id, "f5", "other"))
    text = "query other has written the newest marker, and this is query q"
    with pytest.raises(TakenOverError, match=text):
        opened(opening(5), foreign)

    running = deliver(opening(5), Slot())
    assert Step.PEEK_SLOT is next(running)
    with pytest.raises(TakenOverError):  # before it has fenced the other query
        running.send(foreign)
