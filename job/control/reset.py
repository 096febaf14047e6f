"""The reset of the checkpoint: requested by a command, executed while the query is stopped."""

from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.reset import reset_checkpoint
from job.errors import ConflictError
from job.plan.plan import JoinPlan
from job.protocol import calls
from job.protocol.reports import ResetReport
from job.query.runtime import Resources
from job.redaction import Redaction
from job.spark.failures import failure_of
from job.spec.start_positions import StartPositions, with_all_partitions

_log = structlog.get_logger()


class Reset:
    """Keeps the report of the last reset for the status."""

    def __init__(
        self,
        plan: JoinPlan,
        resources: Resources,
        redaction: Redaction,
        on_reset: Callable[[], None],
    ) -> None:
        """`on_reset` is called before the old checkpoint is moved."""
        self._plan = plan
        self._resources = resources
        self._redaction = redaction
        self._on_reset = on_reset
        self.report: ResetReport | None = None

    @property
    def is_requested(self) -> bool:
        return self.report is not None and self.report.completed_at is None

    def request(self, command: calls.Reset) -> None:
        """Raises ConflictError if a reset is running."""
        if self.is_requested:
            raise ConflictError(
                "another reset is running: try again once it is completed",
                allowed=["stop", "resume"],
            )
        self.report = ResetReport(
            requested_by=command.by, requested_at=datetime.now(UTC), starts=command.starts
        )

    def execute(self) -> None:
        """Move the checkpoint. An error is written into the report and not raised."""
        assert self.report is not None
        now, outcome = datetime.now(UTC), {}
        try:
            checkpoint = self._resources.checkpoint()
            starts = self.report.starts
            if not (isinstance(starts.left, str) and isinstance(starts.right, str)):
                starts = with_all_partitions(starts, _next_positions(checkpoint))
            self._on_reset()  # If the reset fails, the next start may complete it.
            outcome["old_checkpoint"] = reset_checkpoint(checkpoint, starts, now)
        except Exception as error:
            failure = failure_of(error, self._plan.bootstrap_servers)
            self._redaction.scrub_error(failure)
            outcome["error"] = str(failure)
        finally:
            self._resources.release()
        self.report = self.report.model_copy(update={**outcome, "completed_at": datetime.now(UTC)})
        _log.info("reset", **self.report.model_dump(mode="json"))


def _next_positions(checkpoint: Checkpoint) -> StartPositions | None:
    """Where the query would read on. None: at `start_from` of the spec."""
    offsets = checkpoint.offsets
    if offsets is None:  # no batch has ended, for example after another reset
        return checkpoint.start_positions
    return StartPositions(left=dict(offsets["left"]), right=dict(offsets["right"]))
