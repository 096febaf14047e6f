"""Health checks of the container images. Standard library only.

    python -m streamjoin.service.healthcheck job        sends `status` to the job's socket
    python -m streamjoin.service.healthcheck service    requests /livez

Exit 1 prints the reason, which `docker inspect` shows. The check covers the process only; the
service's /readyz reports the state of the query.
"""

import json
import os
import socket
import ssl
import sys
import urllib.request
from pathlib import Path

# Less than the timeout of the images' HEALTHCHECK, so that the reason is printed in time.
ANSWER_SECONDS = 4.0


def job_answers(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_SECONDS)
        connection.connect(str(path))
        connection.sendall(json.dumps({"call": "status"}).encode() + b"\n")
        json.loads(connection.makefile().readline())


def service_answers(port: int, *, tls: bool) -> None:
    # The certificate names another host, and the request holds no secret.
    context = ssl._create_unverified_context() if tls else None  # noqa: S323
    url = f"{'https' if tls else 'http'}://127.0.0.1:{port}/livez"
    # A proxy named in the environment cannot reach this container's loopback address.
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
            sys.exit("usage: python -m streamjoin.service.healthcheck job|service")
    except (OSError, ValueError) as error:
        print(f"does not answer: {error}")  # noqa: T201  # Docker stores the output
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
