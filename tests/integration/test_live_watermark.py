"""The watermark advances while an interval of the real-time engine runs."""

import time
from pathlib import Path

from deploy.local.kafka import EmbeddedKafka
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.real_time_topics import (
    CLOSING,
    CLOSING_AT,
    Topics,
    text_of,
    wait_for_intervals,
)
from tests.polling import wait_until

EMITTED_WITHIN_SECONDS = 10.0


def test_row_that_was_unmatched_within_an_interval_is_in_no_pair_after_a_crash(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    topics = Topics(
        *(kafka, "live", "full_outer", tmp_path), interval="1h", delivery="exactly_once"
    )
    spec = topics.spec(f"on_late_row: dead_letter\ndead_letter: {{topic: {topics.dead}}}")
    left, late = ("a", 20, 1), ("a", 22, 5)
    unmatched, pair = (text_of(topics.result(left, right)) for right in (None, late))
    with Job(spec, tmp_path) as job:
        wait_for_intervals(job)
        topics.send([left], [])
        topics.send(*CLOSING)
        began = time.monotonic()
        wait_until(lambda: topics.results()[unmatched], START_SECONDS, "the unmatched row")
        assert time.monotonic() - began < EMITTED_WITHIN_SECONDS
        # In the same run the row is late, by a watermark that the next run does not have.
        topics.send([], [late])
        wait_until(lambda: topics.letters().total(), START_SECONDS, "the late row")
        job.kill_tree()

        job.start()
        wait_for_intervals(job)
        topics.send([("b", CLOSING_AT, 1)], [("b", CLOSING_AT, 5)])
        both = text_of(topics.result(("b", CLOSING_AT, 1), ("b", CLOSING_AT, 5)))
        wait_until(lambda: topics.results()[both], START_SECONDS, "the pair of the next run")
        status = job.wait_for(lambda status: status.totals.batches, "the repetition has ended")
        assert 0 == job.terminate()

    assert (1, 0, 1) == tuple(topics.results()[text] for text in (unmatched, pair, both))
    assert [(f"{topics.name}.right", "late")] == [each[:2] for each in topics.letters().elements()]
    assert 1 == status.totals.late_rows
