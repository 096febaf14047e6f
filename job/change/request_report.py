"""The report of the last requested change, for the status and, in the checkpoint, for the next
start of the job."""

from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from job.change.files import read_request, write_request
from job.change.old_query import Wait
from job.checkpoint.checkpoint import Checkpoint
from job.errors import CheckpointError
from job.protocol.reports import ChangeRequestReport

_log = structlog.get_logger()


class RequestReport:
    def __init__(self) -> None:
        self.last: ChangeRequestReport | None = None
        """None: no change was requested."""
        self._is_read = False

    def begin(self, by: str, checkpoint: str | None) -> None:
        self.last = ChangeRequestReport(
            requested_by=by, requested_at=datetime.now(UTC), checkpoint=checkpoint
        )

    def wait_for(self, text: str, wait: Wait | None = None) -> None:
        """`text`: what the change waits for. `wait`: None: for its warm-up."""
        interval = None if wait is None else wait.interval
        self._update(
            waits_for=text,
            repeated_interval=None if interval is None else interval.batch_id,
            records_left=None if wait is None else wait.records_left,
        )

    def end_wait(self) -> None:
        self._update(waits_for=None, repeated_interval=None, records_left=None)

    def fail(self, error: str) -> None:
        self.end_wait()
        self._update(failed_at=datetime.now(UTC), error=error)

    def made(self, continuing: Callable[[], Checkpoint]) -> None:
        """Store the report for the query that continues. `continuing`: returns its checkpoint. If
        this fails, the log has a warning: the change is made."""
        self._update(made_at=datetime.now(UTC))
        try:
            self.store(continuing())
        except Exception as error:
            _log.warning("change_report_not_stored", reason=str(error).partition("\n")[0])

    def _update(self, **fields: object) -> None:
        assert self.last is not None
        self.last = self.last.model_copy(update=fields)

    def read(self, checkpoint: Checkpoint) -> None:
        """At the first call, read the report of an earlier run of the job."""
        if self._is_read:
            return
        self._is_read = True
        try:
            self.last = read_request(checkpoint)
        except CheckpointError as error:
            _log.warning("change_report_not_read", reason=str(error))
        if self.last is not None and self.last.made_at is None and self.last.failed_at is None:
            self.fail(
                "the job ended before the change was made, so the query continues without it: send "
                "the change again"
            )
            _log.error("change_failed", **self.last.model_dump(mode="json"))
            self.store(checkpoint)

    def store(self, checkpoint: Checkpoint) -> None:
        assert self.last is not None
        write_request(checkpoint, self.last)
