"""Reports about the runs of the query. This class reports nothing; `reporter` replaces it."""

from enum import StrEnum

from job.plan.plan import JoinPlan


class Outcome(StrEnum):
    """End of a run, in OpenLineage's words."""

    COMPLETE = "COMPLETE"
    """By a command or the end of the job."""
    FAIL = "FAIL"
    ABORT = "ABORT"
    """Another job took over the checkpoint, or the set-up became unusable."""


class RunReports:
    @property
    def counts(self) -> dict[str, int] | None:
        """Events per result. None: lineage is off."""
        return None

    def start(self, run_id: str, plan: JoinPlan) -> None:
        """A run of the query started. `plan`: the plan with the topics that the run reads."""

    def end(self, outcome: Outcome, failure: str | None = None) -> None:
        """The started run ended; without one nothing is reported. `failure`: its message."""

    def close(self) -> None:
        """Deliver the last events, within a deadline."""
