"""Reports a hook that a new version of Spark has broken, where the job can run without it."""

import structlog

_log = structlog.get_logger()
_reported: set[str] = set()


def report_lost_hook(hook: str, error: Exception) -> None:
    """Log a warning, once per process and hook."""
    if hook not in _reported:
        _reported.add(hook)
        _log.warning("spark_hook_lost", hook=hook, reason=str(error).partition("\n")[0])
