"""Known secrets are removed from every text, in each notation."""

import json
from urllib.parse import quote

import structlog
from hypothesis import given
from hypothesis import strategies as st

from job.errors import SecurityError
from job.redaction import MARK, Redaction

SECRETS = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=30)


def redaction(*secrets: str) -> Redaction:
    made = Redaction()
    made.add(secrets)
    return made


@given(SECRETS, st.text(alphabet="xyz "), st.text(alphabet="xyz "))
def test_secret_is_removed_in_every_notation(secret: str, before: str, after: str) -> None:
    scrub = redaction(secret).scrubbed
    jaas = secret.replace("\\", "\\\\").replace('"', '\\"')
    for form in (secret, jaas, json.dumps(secret)[1:-1], repr(secret)[1:-1], quote(secret, "")):
        if not set(secret) & set("xyz "):  # else it may stand before or after, too
            assert f"{before}{MARK}{after}" == scrub(f"{before}{form}{after}")


def test_other_text_is_unchanged() -> None:
    assert "plain" == redaction().scrubbed("plain")
    assert "plain" == redaction("secret").scrubbed("plain")
    assert "plain" == redaction("").scrubbed("plain")


def test_longer_of_two_secrets_is_removed_completely() -> None:
    assert f"{MARK} {MARK}" == redaction("pass", "password1").scrubbed("password1 pass")


def test_secrets_added_before_are_still_removed() -> None:
    made = redaction("first")
    made.add(["second"])

    assert f"{MARK} {MARK}" == made.scrubbed("first second")


def test_scrubbed_error_keeps_its_type() -> None:
    error = SecurityError("no login with hunter2")
    redaction("hunter2").scrub_error(error)

    assert f"no login with {MARK}" == str(error)


def test_log_line_is_scrubbed_with_its_trace() -> None:
    made, output = redaction("hunter2"), structlog.testing.CapturingLogger()
    log = structlog.wrap_logger(
        output, processors=[structlog.processors.format_exc_info, made.scrub_event]
    )
    try:
        int("hunter2")
    except ValueError:
        log.exception("login", options="password=hunter2")

    assert "hunter2" not in str(output.calls)
    assert MARK in output.calls[0].kwargs["options"]
    assert MARK in output.calls[0].kwargs["exception"]
