"""Produces the demo's load for deploy/demo/streams.yaml until SIGTERM or Ctrl-C.

KAFKA_BOOTSTRAP_SERVERS=kafka:9092 python -m deploy.docker.load
"""

import os
import signal
import sys
import time

from deploy.demo.joins import STREAMS
from deploy.demo.topics import Feed
from job.errors import StreamjoinError

POLL_SECONDS = 1.0


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the same way as Ctrl-C
    servers = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")
    try:
        with Feed(servers, STREAMS, seconds=None) as feed:
            while not feed.is_done:
                time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        return 0
    except StreamjoinError as error:
        print(error, file=sys.stderr)  # noqa: T201  # for a person
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
