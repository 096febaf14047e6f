"""Tokens of librdkafka for Amazon MSK, without AWS."""

import sys
from base64 import urlsafe_b64decode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import botocore.auth
import botocore.session
import pytest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError, EndpointConnectionError

from job.errors import BrokerError, SecurityError
from job.kafka.acls import Grant
from job.kafka.security import kafka_access, librdkafka_settings, spark_options
from job.plan import tuning
from job.plan.jvm_options import with_login
from job.spec.security import KafkaSecurity
from tests.aws_signature import signature
from tests.unit.kafka.test_security import refused

# The keys of AWS's own examples.
KEY = "AKIDEXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
ROLE = "arn:aws:iam::123456789012:role/joiner"
IAM = {"protocol": "SASL_SSL", "mechanism": "AWS_MSK_IAM", "region": "eu-west-1"}
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
RECORDED = "7cc178453342e479def8e0e69cbff443ca929b5b0426af0f4b64554172c7195d"
RECORDED_WITH_SESSION = "f0512e35321f0d04cd49bea40c39264e9a1f3198130e2213a2517e25f07908b2"
"""Signatures of tokens at NOW."""


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: NOW.replace(tzinfo=None))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))


def access(**security: Any) -> Any:
    return kafka_access("b:9098", KafkaSecurity(**{**IAM, **security}))


def token_of(**security: Any) -> tuple[str, dict[str, str], float]:
    """Host and parameters of the URL in the token of a client, and the token's end in seconds."""
    text, expires = librdkafka_settings(access(**security))["oauth_cb"]("")
    url = urlsplit(urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    assert url.hostname is not None
    return url.hostname, dict(parse_qsl(url.query)), expires


class Sts:
    """Amazon's STS: returns the keys of a role, or raises an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        self.calls: list[Any] = []
        self._error = error
        monkeypatch.setattr(botocore.session.Session, "create_client", self._client)

    def _client(self, _: str, *, region_name: str) -> "Sts":
        self.calls.append(region_name)
        return self

    def assume_role(self, **arguments: str) -> dict[str, dict[str, str]]:
        self.calls.append(arguments)
        if self._error is not None:
            raise self._error
        keys = {"AccessKeyId": "ASIAROLE", "SecretAccessKey": "role secret"}
        return {"Credentials": {**keys, "SessionToken": "role session"}}


def test_token_is_a_signed_url_of_the_region(monkeypatch: pytest.MonkeyPatch) -> None:
    host, query, expires = token_of()

    assert "kafka.eu-west-1.amazonaws.com" == host
    assert "aws-msk-iam-sasl-signer-python/1.0.2" == query.pop("User-Agent")
    recorded = query.pop("X-Amz-Signature")
    assert {
        "Action": "kafka-cluster:Connect",
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": "AKIDEXAMPLE/20260102/eu-west-1/kafka-cluster/aws4_request",
        "X-Amz-Date": "20260102T030405Z",
        "X-Amz-Expires": "900",
        "X-Amz-SignedHeaders": "host",
    } == query
    assert RECORDED == recorded == signature(host, query, SECRET)
    assert NOW.timestamp() + 900 == expires

    monkeypatch.setenv("AWS_SESSION_TOKEN", "a/session+token=")
    host, query, _ = token_of()
    del query["User-Agent"]
    recorded = query.pop("X-Amz-Signature")
    assert "a/session+token=" == query["X-Amz-Security-Token"]
    assert RECORDED_WITH_SESSION == recorded == signature(host, query, SECRET)


def test_role_is_assumed_in_the_region_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    sts = Sts(monkeypatch)
    _, query, _ = token_of(role_arn=ROLE)

    assert query["X-Amz-Credential"].startswith("ASIAROLE/")
    assert "role session" == query["X-Amz-Security-Token"]
    assert ["eu-west-1", {"RoleArn": ROLE, "RoleSessionName": "streamjoin"}] == sts.calls[-2:]
    assert ["role secret", "role session"] == access(role_arn=ROLE).secrets


def test_both_dialects() -> None:
    made = access()
    settings = librdkafka_settings(made)
    del settings["oauth_cb"]
    assert {
        "bootstrap.servers": "b:9098",
        "security.protocol": "SASL_SSL",
        "ssl.endpoint.identification.algorithm": "https",
        "sasl.mechanism": "OAUTHBEARER",
    } == settings
    package = "software.amazon.msk.auth.iam"
    assert {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.endpoint.identification.algorithm": "https",
        "kafka.sasl.mechanism": "AWS_MSK_IAM",
        "kafka.sasl.jaas.config": f"{package}.IAMLoginModule required;",
        "kafka.sasl.client.callback.handler.class": f"{package}.IAMClientCallbackHandler",
    } == spark_options(made)
    options = with_login(tuning.CONF, made.security)
    assert 2 == len(options)
    for text in options.values():
        assert "-Daws.region=eu-west-1" in text.split()


def test_role_in_the_options_of_the_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    Sts(monkeypatch)
    assert spark_options(access(role_arn=ROLE))["kafka.sasl.jaas.config"].endswith(
        f' required awsRoleArn="{ROLE}" awsRoleSessionName="streamjoin" awsStsRegion="eu-west-1";'
    )
    assert f"SASL_SSL, AWS_MSK_IAM in eu-west-1 as {ROLE}" == str(access(role_arn=ROLE).security)


@pytest.mark.parametrize(
    ("security", "text"),
    [
        ({**IAM, "region": None}, "AWS_MSK_IAM needs region"),
        ({**IAM, "region": "Ireland"}, "kafka.security.region: "),
        ({**IAM, "region": "eu-west-1 -Dx=y"}, "kafka.security.region: "),
        ({**IAM, "role_arn": "joiner"}, "kafka.security.role_arn: "),
        ({**IAM, "protocol": "SASL_PLAINTEXT"}, "AWS_MSK_IAM needs protocol SASL_SSL"),
        ({**IAM, "username": "ada"}, "username has no effect: AWS_MSK_IAM has no such login"),
        ({"protocol": "SSL", "region": "eu-west-1"}, "region has no effect: protocol SSL has no"),
        (
            {"protocol": "SASL_SSL", "mechanism": "PLAIN", "role_arn": ROLE},
            "role_arn has no effect: only AWS_MSK_IAM uses it",
        ),
    ],
)
def test_contradictory_settings_are_refused(security: dict[str, str], text: str) -> None:
    assert text in refused(**security)


def test_machine_without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    with pytest.raises(SecurityError, match="found no AWS credentials: set AWS_ACCESS_KEY_ID and"):
        access()


def test_role_that_cannot_be_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    denied = {"Error": {"Code": "AccessDenied", "Message": "not allowed"}}
    throttled = {"Error": {"Code": "Throttling"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    down = {"Error": {"Code": "InternalFailure"}, "ResponseMetadata": {"HTTPStatusCode": 503}}
    for error, kind, text in (
        (ClientError(denied, "AssumeRole"), SecurityError, "cannot be assumed: An error occurred"),
        (ClientError(throttled, "AssumeRole"), BrokerError, "returns no credentials"),
        (ClientError(down, "AssumeRole"), BrokerError, "returns no credentials"),
        (EndpointConnectionError(endpoint_url="sts"), BrokerError, "returns no credentials"),
    ):
        Sts(monkeypatch, error)
        with pytest.raises(kind, match=text):
            access(role_arn=ROLE)


@pytest.mark.parametrize("role", [None, ROLE])
def test_machine_whose_credentials_are_refused(
    monkeypatch: pytest.MonkeyPatch, role: str | None
) -> None:
    Sts(monkeypatch)

    def refuse(_: object) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied"}}, "AssumeRoleWithWebIdentity")

    monkeypatch.setattr(Credentials, "get_frozen_credentials", refuse)
    with pytest.raises(SecurityError, match=r"AWS refuses the credentials of this machine: .*Web"):
        access(role_arn=role)


@pytest.mark.parametrize(
    ("grant", "resource"),
    [
        (Grant(["Write"], "--topic t"), "kafka-cluster:WriteData on topic t"),
        (
            Grant(["Write"], "--transactional-id p- --resource-pattern-type prefixed"),
            "kafka-cluster:AlterTransactionalId on transactional id p-*",
        ),
    ],
)
def test_missing_right_is_named_as_in_a_policy(grant: Grant, resource: str) -> None:
    command = grant.command(access())
    assert command.startswith("IAM actions kafka-cluster:Describe")
    assert command.endswith(resource)


def test_package_without_amazons_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    access()
    monkeypatch.delitem(sys.modules, "job.kafka.msk")
    monkeypatch.delattr("job.kafka.msk")
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)

    with pytest.raises(SecurityError, match=r"install `streamjoin\[msk\]`"):
        access()
