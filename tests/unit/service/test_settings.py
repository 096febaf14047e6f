"""Settings from the environment, and the help text."""

import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from pydantic import ValidationError

from job.errors import SetupError
from job.settings import JobSettings, read_settings
from service.__main__ import main
from service.settings import ServiceSettings


def test_job_and_service_have_the_same_default_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("STREAMJOIN_SOCKET", raising=False)

    assert read_settings(JobSettings).socket == read_settings(ServiceSettings).socket


def test_service_listens_on_loopback_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMJOIN_HOST", raising=False)
    monkeypatch.delenv("STREAMJOIN_PORT", raising=False)
    settings = read_settings(ServiceSettings)

    assert ("127.0.0.1", 8080, True) == (settings.host, settings.port, settings.is_local)


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMJOIN_HOST", "::1")
    monkeypatch.setenv("STREAMJOIN_PORT", "9000")
    monkeypatch.setenv("STREAMJOIN_SOCKET", "/run/join.sock")
    settings = read_settings(ServiceSettings)

    assert ("::1", 9000, Path("/run/join.sock")) == (settings.host, settings.port, settings.socket)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_is_local(host: str) -> None:
    assert ServiceSettings(host=host).is_local


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "example.org", "localhost.evil"])  # noqa: S104
def test_other_address_is_not_local(host: str) -> None:
    assert not ServiceSettings(host=host).is_local


@pytest.mark.parametrize(
    "wrong",
    [{"port": 70_000}, {"host": ""}, {"job_answer_seconds": 0}, {"progress_age_max_seconds": -1}],
)
def test_invalid_setting_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ServiceSettings(**wrong)


def test_help_lists_every_setting_with_its_description(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        patch.object(sys, "argv", ["streamjoin-service", "--help"]),
        pytest.raises(SystemExit, match="0"),
    ):
        main()

    text = capsys.readouterr().out
    for name, field in ServiceSettings.model_fields.items():
        assert f"STREAMJOIN_{name.upper()}" in text
        assert (field.description or "").split()[:3], f"{name} has no description"


def test_unknown_argument_is_refused_before_the_service_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with (
        patch.object(sys, "argv", ["streamjoin-service", "--prot", "80"]),
        pytest.raises(SystemExit, match="2"),
    ):
        main()

    assert "unrecognized arguments" in capsys.readouterr().err


def test_variable_with_a_misspelled_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMJOIN_STATE_PARTITONS", "4")

    with pytest.raises(SetupError, match="did you mean STREAMJOIN_STATE_PARTITIONS"):
        read_settings(JobSettings)


def test_no_setting_has_a_name_that_is_taken_for_a_misspelled_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The variables of job and service may be set for both."""
    for name in (*JobSettings.model_fields, *ServiceSettings.model_fields):
        for kind in (JobSettings, ServiceSettings):
            if name not in kind.model_fields:
                with monkeypatch.context() as environment:
                    environment.setenv(f"STREAMJOIN_{name.upper()}", "1")
                    read_settings(kind)
