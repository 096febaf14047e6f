"""Exit codes of the set-up commands. Standard library only."""

import sys
from collections.abc import Callable

from job.errors import StreamjoinError


def exit_code(run: Callable[[], None]) -> int:
    """Run a command and return its exit code. The message of an error is printed."""
    try:
        run()
    except StreamjoinError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0
