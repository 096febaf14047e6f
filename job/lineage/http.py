"""The reporter of a job, from its settings."""

from datetime import timedelta
from urllib.parse import urlsplit

from openlineage.client.transport.http import (
    ApiKeyTokenProvider,
    HttpConfig,
    HttpTransport,
    TokenProvider,
)

from job.errors import SetupError
from job.lineage.events import RunEvents
from job.lineage.reporter import LineageReporter
from job.plan.plan import JoinPlan
from job.redaction import Redaction
from job.settings import JobSettings

_POST_SECONDS = 5.0


def lineage_reporter(
    plan: JoinPlan, url: str, settings: JobSettings, redaction: Redaction
) -> LineageReporter:
    """Sends to `url`. The API key is added to `redaction`."""
    # The transport alone: the client above it would read openlineage.yml in the working folder, and
    # could add variables of the environment to the events.
    config = HttpConfig(
        # With a final slash, so that the endpoint is appended to the path.
        url=_checked(url).rstrip("/") + "/",
        timeout=_POST_SECONDS,
        auth=_authentication(settings, redaction),
        retry={"total": 0},
    )
    interval = timedelta(seconds=settings.openlineage_interval_seconds)
    events = RunEvents(plan, settings.openlineage_namespace)
    return LineageReporter(events, HttpTransport(config), redaction, interval)


def _checked(url: str) -> str:
    """`url`. The message of its SetupError omits the URL, which may contain a password."""
    try:
        parts = urlsplit(url)
        _ = parts.port
        is_valid = parts.scheme in {"http", "https"} and parts.hostname and "@" not in parts.netloc
    except ValueError:
        is_valid = False
    if not is_valid:
        raise SetupError(
            "STREAMJOIN_OPENLINEAGE_URL: must be an http or https URL without a user or password; "
            "the key of the API belongs in STREAMJOIN_OPENLINEAGE_API_KEY_FILE"
        )
    return url


def _authentication(settings: JobSettings, redaction: Redaction) -> TokenProvider:
    path = settings.openlineage_api_key_file
    if path is None:
        return TokenProvider({})
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"STREAMJOIN_OPENLINEAGE_API_KEY_FILE: {error}") from error
    redaction.add([key])
    return ApiKeyTokenProvider({"apiKey": key})
