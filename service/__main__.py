"""The `streamjoin-service` command: serves until SIGTERM or Ctrl-C."""

import argparse
import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from textwrap import fill, indent
from types import FrameType

import structlog
import uvicorn
from fastapi import FastAPI

from job.errors import SetupError
from job.settings import read_settings
from service.app import create_app
from service.http_protocol import TimedProtocol
from service.logs import log_to_stderr
from service.settings import ServiceSettings
from service.version import VERSION

# Longer than the timeout of a call to the job, shorter than the 10 s of `docker stop`.
_GRACE_SECONDS = 5


def main() -> None:
    _parse_arguments()
    try:
        settings = read_settings(ServiceSettings)
        app = create_app(settings)
        _check_tls(settings)
        listener = listening_socket(settings.host, settings.port)
    except SetupError as error:
        sys.exit(f"streamjoin-service: {error}")
    log_to_stderr(settings.log_format)
    serve(app, settings, listener)


def serve(app: FastAPI, settings: ServiceSettings, listener: socket.socket) -> None:
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http=TimedProtocol,
            log_config=None,
            ssl_certfile=settings.tls_cert_file,
            ssl_keyfile=settings.tls_key_file,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
    )

    def end(number: int, frame: FrameType | None) -> None:
        """For signals before uvicorn installs its handlers, and after: it raises them again."""
        del number, frame
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    host, port = listener.getsockname()[:2]
    log = structlog.get_logger()
    scheme = "http" if settings.tls_cert_file is None else "https"
    log.info("serving", scheme=scheme, host=host, port=port, socket=str(settings.socket))
    if settings.tokens_file is not None and scheme == "http" and not settings.is_local:
        log.warning(
            "tokens_unencrypted",
            remedy="set STREAMJOIN_TLS_CERT_FILE and STREAMJOIN_TLS_KEY_FILE, "
            "or restrict this port to a proxy with TLS",
        )
    server.run(sockets=[listener])
    log.info("stopped")


def _parse_arguments() -> None:
    """The command takes no arguments except --help and --version."""
    parser = argparse.ArgumentParser(
        prog="streamjoin-service",
        description="Serves the HTTP API, metrics and status page of a Streamjoin job.",
        epilog="environment variables:\n" + "\n".join(_variables()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"streamjoin-service {VERSION}")
    parser.parse_args()


def _variables() -> Iterator[str]:
    """Help text of each setting, from the fields of ServiceSettings."""
    for name, field in ServiceSettings.model_fields.items():
        default = "" if field.default is None else f" (default: {field.default})"
        text = fill(" ".join((field.description or "").split()), 92)
        yield f"  STREAMJOIN_{name.upper()}{default}\n" + indent(text, " " * 6)


def _check_tls(settings: ServiceSettings) -> None:
    certificate, key = settings.tls_cert_file, settings.tls_key_file
    if (certificate is None) != (key is None):
        raise SetupError("set STREAMJOIN_TLS_CERT_FILE and STREAMJOIN_TLS_KEY_FILE, or neither")
    if certificate is None or key is None:
        return

    def no_password() -> str:
        raise SetupError(f"STREAMJOIN_TLS_KEY_FILE {key} is encrypted: use a key without password")

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, no_password)
    except OSError as error:  # ssl.SSLError is one
        raise SetupError(
            f"cannot load TLS files {certificate} and {key} ({error.strerror or error}): "
            "both must be PEM, and the key must match the certificate"
        ) from error


def listening_socket(host: str, port: int) -> socket.socket:
    """A listening socket. SetupError if the port is in use, before anything else starts."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = addresses[0]
        with ExitStack() as on_error:
            # asyncio sets TCP_NODELAY only if the protocol is given; without it a call takes 40 ms
            # more.
            listener = on_error.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen()
            on_error.pop_all()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SetupError(
            f"cannot listen on {host}:{port} ({reason}): "
            "set STREAMJOIN_HOST or STREAMJOIN_PORT, or stop the process that listens there"
        ) from error
    return listener


if __name__ == "__main__":
    main()
