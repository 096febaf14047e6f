"""The failure of a run of the query, as the error that clients see."""

from job.errors import QueryError, StreamjoinError, UnexpectedError
from job.spark.failures import failure_of


def failure_of_run(
    error: Exception,
    bootstrap_servers: str,
    batch_id: int | None,
    *,
    session_is_lost: bool,
) -> StreamjoinError:
    """`batch_id`: the batch that the next run begins with. None: unknown, no run has begun yet.

    `session_is_lost`: Spark or its cluster has ended the application, so `error` hides the cause.
    """
    failure = failure_of(error, bootstrap_servers)
    if session_is_lost:
        return QueryError(
            f"Spark or its cluster ended the application: {failure}. The job starts it again",
            retryable=True,
        )
    if not isinstance(failure, UnexpectedError):
        return failure
    again = "starts the query" if batch_id is None else f"runs batch {batch_id}"
    return UnexpectedError(
        f"{failure}. The job {again} again, and nothing is lost. If the error persists, "
        "read the complete error in the log of the job. If records cause the error, leave them out "
        "with `left.filter` or `right.filter`, then `restart`"
    )
