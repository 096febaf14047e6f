"""The images' health checks: whether the process of this container answers. Standard library only.

    python -m deploy.docker.health job        asks on the job's socket
    python -m deploy.docker.health service    asks for /livez

It prints what is wrong and exits 1: `docker inspect` shows it. Whether the query is well is another
question, which the service answers by /readyz.
"""

import json
import os
import socket
import ssl
import sys
import urllib.request
from pathlib import Path

# Less than the images' HEALTHCHECK allows: the reason is told before the check is ended.
ANSWER_SECONDS = 4.0


def job_answers(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_SECONDS)
        connection.connect(str(path))
        connection.sendall(json.dumps({"call": "status", "by": "health"}).encode() + b"\n")
        json.loads(connection.makefile().readline())


def service_answers(port: int, *, tls: bool) -> None:
    # Its certificate is made out to another name than this one, and nothing secret is said.
    context = ssl._create_unverified_context() if tls else None  # noqa: S323
    url = f"{'https' if tls else 'http'}://127.0.0.1:{port}/livez"
    # A proxy that the environment names knows nothing of this container.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    opener.open(url, timeout=ANSWER_SECONDS).close()


def main() -> int:
    try:
        if sys.argv[1:] == ["job"]:
            job_answers(Path(os.environ["STREAMJOIN_SOCKET"]))
        elif sys.argv[1:] == ["service"]:
            port = int(os.environ.get("STREAMJOIN_PORT", "8080"))
            service_answers(port, tls="STREAMJOIN_TLS_CERT_FILE" in os.environ)
        else:
            sys.exit("usage: python -m deploy.docker.health job|service")
    except (OSError, ValueError) as error:
        print(f"does not answer: {error}")  # noqa: T201  # Docker keeps what is printed
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
