"""The client of a running job, for commands: on its control socket, or through the service."""

import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import urlencode, urlsplit

from pydantic import BaseModel, ValidationError

from job.api.offsets import OffsetsView
from job.api.query import QueryView, RestartView
from job.api.start_requests import OffsetsRequest, ResetRequest, confirm, new_offsets
from job.errors import ConflictError, JobUnavailableError, RequestError, SecurityError
from job.protocol import calls
from job.protocol.caller import ANSWER_SECONDS, call
from job.protocol.calls import Request
from job.protocol.control import Response
from job.protocol.reports import StateCount
from job.protocol.results import KeyExplanation, KeyRows, SpecFileResult
from job.protocol.status import JobStatus
from job.protocol.unavailable import same_version, unavailability
from job.spec.sides import Side

QueryVerb = Literal["pause", "resume", "stop", "restart"]

_METHODS: Mapping[QueryVerb, str] = {
    "pause": "PUT",
    "resume": "PUT",
    "stop": "PUT",
    "restart": "POST",
}
_COMMANDS: Mapping[QueryVerb, type[calls.Pause | calls.Resume | calls.Stop]] = {
    "pause": calls.Pause,
    "resume": calls.Resume,
    "stop": calls.Stop,
}
# A restart plans the spec file first, `explain` reads state and topics. The service has shorter
# deadlines.
_SLOW_SECONDS = 60.0
_ROWS_MAX = 20
"""Rows in state per side, in the answer of `explain`."""
_LOOKUP_ROWS_MAX = 100
"""Rows in the answer of `state`: the maximum of the service."""
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}

_View = TypeVar("_View", bound=BaseModel)


class JobClient(Protocol):
    """Each call raises JobUnavailableError if the job does not answer."""

    def query(self) -> QueryView:
        """As GET /v1/query."""

    def offsets(self) -> OffsetsView:
        """As GET /v1/query/offsets."""

    def command(self, verb: QueryVerb, reason: str | None) -> QueryView:
        """The state, for `restart` a RestartView, once the job has accepted the command.

        Raises ConflictError if the state of the query forbids the command.
        """

    def reset(self, request: ResetRequest | OffsetsRequest, reason: str | None) -> QueryView:
        """The state once the job has accepted the reset. Raises ConflictError unless the query is
        STOPPED, RequestError if the request does not fit the query."""

    def explain(self, key: Sequence[str], since: datetime | None) -> KeyExplanation:
        """As GET /v1/query/explain. Raises RequestError if the key does not fit the spec,
        ConflictError if the query is neither RUNNING nor PAUSED."""

    def state_rows(self, side: Side, key: Sequence[str]) -> KeyRows:
        """As GET /v1/query/state/{side}. Raises the errors of `explain`."""

    def state_count(self) -> StateCount:
        """As GET /v1/query/state. Raises ConflictError as `explain`."""


class SocketClient:
    def __init__(self, path: Path, name: str, user: str) -> None:
        """`name`: of the join; the job on the socket may run another one. `user`: sends the
        commands."""
        self._path = path
        self._name = name
        self._user = user

    def query(self) -> QueryView:
        return QueryView.of(self._status(), datetime.now(UTC))

    def offsets(self) -> OffsetsView:
        return OffsetsView.of(self._status())

    def command(self, verb: QueryVerb, reason: str | None) -> QueryView:
        self._status()
        spec_file = self._read_spec() if verb == "restart" else None
        sender = self._sender(reason)
        if spec_file is None:
            return QueryView.of(self._call(_COMMANDS[verb](**sender)), datetime.now(UTC))
        status = self._call(calls.Restart(**sender, reads_spec=True))
        return RestartView.after(status, datetime.now(UTC), spec_file)

    def reset(self, request: ResetRequest | OffsetsRequest, reason: str | None) -> QueryView:
        status = self._status()
        confirm(request.confirm, status)
        if isinstance(request, ResetRequest):
            starts = request.starts
        else:
            starts = new_offsets(request, status)
        status = self._call(calls.Reset(**self._sender(reason), starts=starts))
        return QueryView.of(status, datetime.now(UTC))

    def explain(self, key: Sequence[str], since: datetime | None) -> KeyExplanation:
        self._status()
        request = calls.Explain(key=list(key), limit=_ROWS_MAX, since=since)
        return self._result(request, KeyExplanation)

    def state_rows(self, side: Side, key: Sequence[str]) -> KeyRows:
        self._status()
        request = calls.State(side=side, key=list(key), limit=_LOOKUP_ROWS_MAX)
        return self._result(request, KeyRows)

    def state_count(self) -> StateCount:
        self._status()
        return self._result(calls.StateCount(), StateCount)

    def _sender(self, reason: str | None) -> dict[str, Any]:
        """Fields of each command."""
        not_after = datetime.now(UTC) + timedelta(seconds=ANSWER_SECONDS)
        return {"by": f"user:{self._user}", "not_after": not_after, "reason": reason}

    def _read_spec(self) -> str:
        return self._result(calls.ReadSpec(within_seconds=_SLOW_SECONDS), SpecFileResult).message

    def _result(self, request: Request, model: type[_View]) -> _View:
        return self._answer(
            request, _SLOW_SECONDS, lambda response: model.model_validate(response.result)
        )

    def _status(self) -> JobStatus:
        """Raises ConflictError if the job runs another join."""
        status = self._call(calls.Status())
        if status.name != self._name:
            raise ConflictError(
                f"the job on {self._path} runs the join {status.name}, and `name` in this spec is "
                f"{self._name}: set STREAMJOIN_SOCKET to the socket of the job, or use its spec",
                allowed=[],
            )
        return status

    def _call(self, request: Request) -> JobStatus:
        return self._answer(
            request, ANSWER_SECONDS, lambda response: JobStatus.model_validate(response.status)
        )

    def _answer(self, request: Request, seconds: float, read: Callable[[Response], _View]) -> _View:
        with unavailability(self._path, seconds, request), same_version(self._path, request):
            return read(call(self._path, request, seconds))


class HttpClient:
    def __init__(self, url: str, token: str | None, name: str | None) -> None:
        """`url`: of the service. `token`: None: the service has no tokens. `name`: of the join.
        None: any join.

        Raises RequestError if `url` is invalid, or if it would send the token unencrypted.
        """
        scheme, host = _scheme_and_host(url)
        is_local = host in _LOOPBACK
        if token is not None and scheme == "http" and not is_local:
            raise RequestError(
                f"invalid --url {url}: the token would be sent unencrypted; use https, or a "
                "loopback address"
            )
        self._url = url.rstrip("/")
        self._token = token
        self._name = name
        # A redirect would send the token to another server. A proxy cannot reach this machine's
        # loopback addresses.
        self._opener = urllib.request.build_opener(
            _NoRedirect,
            *([urllib.request.ProxyHandler({})] if is_local else []),
            urllib.request.HTTPSHandler(context=ssl.create_default_context()),
        )

    def query(self) -> QueryView:
        view = self._call("GET", "", QueryView, ANSWER_SECONDS)
        if self._name not in {None, view.name}:
            raise ConflictError(
                f"the service at {self._url} serves the join {view.name}, and `name` in this spec "
                f"is {self._name}: use the URL of its service, or its spec",
                allowed=[],
            )
        return view

    def offsets(self) -> OffsetsView:
        self.query()
        return self._call("GET", "/offsets", OffsetsView, ANSWER_SECONDS)

    def command(self, verb: QueryVerb, reason: str | None) -> QueryView:
        self.query()
        view = RestartView if verb == "restart" else QueryView
        return self._call(_METHODS[verb], f"/{verb}{_reason_query(reason)}", view)

    def reset(self, request: ResetRequest | OffsetsRequest, reason: str | None) -> QueryView:
        self.query()
        is_named = isinstance(request, ResetRequest)
        method, path = ("POST", "/reset") if is_named else ("PATCH", "/offsets")
        return self._call(method, f"{path}{_reason_query(reason)}", QueryView, body=request)

    def explain(self, key: Sequence[str], since: datetime | None) -> KeyExplanation:
        self.query()
        asked = {"key": key, "limit": _ROWS_MAX}
        if since is not None:
            asked["since"] = since.isoformat()
        return self._call("GET", f"/explain?{urlencode(asked, doseq=True)}", KeyExplanation)

    def state_rows(self, side: Side, key: Sequence[str]) -> KeyRows:
        self.query()
        asked = {"key": key, "limit": _LOOKUP_ROWS_MAX}
        return self._call("GET", f"/state/{side}?{urlencode(asked, doseq=True)}", KeyRows)

    def state_count(self) -> StateCount:
        self.query()
        return self._call("GET", "/state", StateCount)

    def _call(
        self,
        method: str,
        path: str,
        view: type[_View],
        seconds: float = _SLOW_SECONDS,
        body: BaseModel | None = None,
    ) -> _View:
        headers = {"Accept": "application/json"}
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = body.model_dump_json(exclude_unset=True).encode()
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        address = f"{self._url}/v1/query{path}"
        request = urllib.request.Request(address, data, headers, method=method)  # noqa: S310
        try:
            with self._opener.open(request, timeout=seconds) as answer:
                return view.model_validate_json(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise _error_of(error, address) from error
        except ValidationError as error:
            raise JobUnavailableError(
                f"{address} is no Streamjoin service of this version: check --url, and use the "
                "version of the service"
            ) from error
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise JobUnavailableError(
                f"no service answers at {self._url} ({reason}): check --url, and that the service "
                "runs. SSL_CERT_FILE is the file with a private certificate authority"
            ) from error


def _reason_query(reason: str | None) -> str:
    return "" if reason is None else f"?{urlencode({'reason': reason})}"


def _scheme_and_host(url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url)
        is_valid = url.isascii() and url.isprintable() and parts.port != 0
    except ValueError:  # for example, the port is no number
        is_valid = False
    if not is_valid or parts.scheme not in {"http", "https"} or not parts.hostname:
        raise RequestError(f"invalid --url {url[:100]!r}: write https://HOST:PORT")
    return parts.scheme, parts.hostname


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Report the redirect as an error."""


def _error_of(error: urllib.error.HTTPError, address: str) -> Exception:
    """The error for a response that is no success: with the `detail` of the service."""
    try:
        body = json.loads(error.read())
        detail, allowed = str(body["detail"]), list(body.get("allowed") or [])
    except (ValueError, KeyError, TypeError, OSError):
        return JobUnavailableError(f"{address} answers {error.code} {error.reason}: check --url")
    match error.code:
        case 409:
            return ConflictError(detail, allowed=allowed)
        case 401:
            return SecurityError(f"{detail}. With this command: --token-file FILE")
        case 403:
            return SecurityError(detail)
        case 422:
            return RequestError(detail)
        case _:
            return JobUnavailableError(detail)


def read_token(path: Path) -> str:
    """Raises SecurityError if the file cannot be read or has no token in its only line."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not ASCII text"
        raise SecurityError(f"--token-file {os.fsdecode(path)} cannot be read: {reason}") from error
    if not text or len(text.split()) != 1:
        raise SecurityError(
            f"--token-file {path} must contain one token and nothing else: the token that the "
            "client sends, not the service's file of tokens"
        )
    return text
