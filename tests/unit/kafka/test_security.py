"""Kafka's security in a spec, and the settings of both clients."""

import pickle
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from job.errors import SecurityError, SpecError
from job.kafka.security import jaas, kafka_access, librdkafka_settings, spark_options
from job.plan.explain import explained
from job.spec.security import KafkaSecurity, Mechanism
from job.spec.spec import spec_from_yaml
from tests.unit.specs import plan, spec_yaml

SECRET = "a\"b\\c//d;e'f$g\u00e9"  # each character that some dialect could trip over
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
_KEY = ec.generate_private_key(ec.SECP256R1())


def key_pem(kind: PrivateFormat, password: str | None = None) -> str:
    encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    return _KEY.private_bytes(Encoding.PEM, kind, encryption).decode()


KEY = key_pem(PrivateFormat.PKCS8)
SCRAM = {"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-512", "username": "ada"}
OAUTH = {
    "protocol": "SASL_SSL",
    "mechanism": "OAUTHBEARER",
    "client_id": "joiner",
    "client_secret": SECRET,
    "token_endpoint": "https://idp.example.org/token",
}


def refused(**security: Any) -> str:
    with pytest.raises(SpecError) as error:
        plan(kafka__security=security)
    return str(error.value)


def written(folder: Path, **contents: str) -> dict[str, str]:
    """Each content in a separate file: field → path."""
    for name, content in contents.items():
        (folder / name).write_text(content)
    return {name: str(folder / name) for name in contents}


def access(**security: Any) -> Any:
    return kafka_access("broker:9093", KafkaSecurity(**security))


# --- Both dialects


def test_plain_broker_needs_no_settings_but_its_address() -> None:
    assert {"bootstrap.servers": "b:1"} == librdkafka_settings(kafka_access("b:1", None))
    assert {} == spark_options(kafka_access("b:1", None))


def test_scram_in_both_dialects(tmp_path: Path) -> None:
    files = written(tmp_path, password_file=SECRET + "\n", ca_file=CERTIFICATE)
    made = access(**SCRAM, **files)

    assert {
        "bootstrap.servers": "broker:9093",
        "security.protocol": "SASL_SSL",
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.ca.pem": CERTIFICATE,
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ada",
        "sasl.password": SECRET,
    } == librdkafka_settings(made)
    assert {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.endpoint.identification.algorithm": "https",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": CERTIFICATE,
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="ada" password="a\\"b\\\\c//d;e\'f$g\u00e9";'
        ),
    } == spark_options(made)


@pytest.mark.parametrize("kind", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
@pytest.mark.parametrize("password", [None, "open sesame"])
def test_mutual_tls_in_both_dialects(
    kind: PrivateFormat, password: str | None, tmp_path: Path
) -> None:
    files = written(tmp_path, certificate_file=CERTIFICATE, key_file=key_pem(kind, password))
    if password:
        files |= written(tmp_path, key_password_file=password)
    made = access(protocol="SSL", **files)

    assert {
        "bootstrap.servers": "broker:9093",
        "security.protocol": "SSL",
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.certificate.pem": CERTIFICATE,
        "ssl.key.pem": KEY,
    } == librdkafka_settings(made)
    assert {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.endpoint.identification.algorithm": "https",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": CERTIFICATE,
        "kafka.ssl.keystore.key": KEY,
    } == spark_options(made)


def test_oauth_in_both_dialects() -> None:
    made = access(**OAUTH, scope="kafka")

    assert {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "joiner",
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.token.endpoint.url": "https://idp.example.org/token",
        "sasl.oauthbearer.scope": "kafka",
    }.items() <= librdkafka_settings(made).items()
    options = spark_options(made)
    assert options["kafka.sasl.jaas.config"].endswith(
        'clientId="joiner" clientSecret="a\\"b\\\\c//d;e\'f$g\u00e9" scope="kafka";'
    )
    assert "https://idp.example.org/token" == options["kafka.sasl.oauthbearer.token.endpoint.url"]


def test_token_endpoint_is_the_only_url_that_the_jvm_may_request() -> None:
    flag = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=https://idp.example.org/token"

    for name in ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"):
        options = plan(kafka__security=OAUTH).spark_conf[name].split()
        assert flag in options
        assert "-Dorg.apache.kafka.automatic.config.providers=none" in options
        assert "allowed.urls" not in plan().spark_conf[name]


def test_settings_can_be_sent_to_executors() -> None:
    settings = librdkafka_settings(access(**SCRAM, password=SECRET))

    assert settings == pickle.loads(pickle.dumps(settings))  # noqa: S301  # our own


@given(st.text(st.characters(max_codepoint=0x1F) | st.just("\x7f"), min_size=1))
def test_control_characters_never_get_into_a_jaas_line(control: str) -> None:
    with pytest.raises(ValueError, match="control character"):
        jaas(Mechanism.PLAIN, {"password": f"a{control}b"})


# --- What makes no sense is refused, with the remedy


@pytest.mark.parametrize(
    ("security", "text"),
    [
        ({"protocol": "SASL_SSL"}, "protocol SASL_SSL needs a mechanism, one of PLAIN, SCRAM"),
        ({"protocol": "SSL", "username": "u"}, "protocol SSL has no login; use SASL_SSL"),
        ({"protocol": "PLAINTEXT", "ca_file": "x"}, "ca_file has no effect: protocol PLAINTEXT"),
        (SCRAM, "SCRAM-SHA-512 needs password_file (or password: ${VARIABLE})"),
        ({**SCRAM, "password": "x", "password_file": "y"}, "remove one of them"),
        ({**SCRAM, "password": "x", "scope": "y"}, "scope has no effect: only OAUTHBEARER"),
        (
            {**OAUTH, "username": "x"},
            "username has no effect: OAUTHBEARER has no user name",
        ),
        ({"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER"}, "OAUTHBEARER needs client_id"),
        ({"protocol": "SSL", "key_file": "x"}, "key_file needs certificate_file"),
        ({"protocol": "SSL", "certificate_file": "x"}, "certificate_file needs key_file"),
        ({"protocol": "SSL", "key_password_file": "x"}, "key_password_file needs key_file"),
        ({"protocol": "TLS"}, "kafka.security.protocol: must be one of 'PLAINTEXT', 'SSL'"),
        ({**SCRAM, "mechanism": "GSSAPI"}, "kafka.security.mechanism: must be one of 'PLAIN'"),
        ({**SCRAM, "password": "a\nb"}, "kafka.security.password: contains a control character"),
        ({**SCRAM, "password": ""}, "kafka.security.password: "),
        ({**OAUTH, "token_endpoint": "http://idp.example.org"}, "must begin with https://"),
        ({**OAUTH, "token_endpoint": "file:///etc/passwd"}, "must begin with https://"),
        ({**OAUTH, "token_endpoint": "https://a -Dx=y"}, "contains a character that is invalid"),
        ({**SCRAM, "pasword": "x"}, "kafka.security.pasword: unknown field; did you"),
    ],
)
def test_contradictory_settings_are_refused(security: dict[str, str], text: str) -> None:
    assert text in refused(**security)


@pytest.mark.parametrize(
    ("field", "content", "text"),
    [
        ("password_file", None, "cannot be read: No such file or directory"),
        ("password_file", "\n", "is empty"),
        ("password_file", "two\nlines\n", "contains a control character"),
        ("ca_file", "no PEM", "does not contain `-----BEGIN CERTIFICATE-----`: it must be PEM"),
        ("key_file", "no PEM", "contains no private key in PEM"),
        ("key_file", key_pem(PrivateFormat.PKCS8, "x"), "is encrypted: set key_password"),
    ],
)
def test_file_that_cannot_be_used_is_named_with_its_field(
    field: str, content: str | None, text: str, tmp_path: Path
) -> None:
    files = written(tmp_path, certificate_file=CERTIFICATE, key_file=KEY, password_file="pw")
    files[field] = str(tmp_path / "it")
    if content is not None:
        (tmp_path / "it").write_text(content)

    with pytest.raises(SecurityError) as error:
        access(**SCRAM, **files)
    assert f"kafka.security.{field} {tmp_path / 'it'} {text}" in str(error.value)


def test_wrong_key_password_is_named(tmp_path: Path) -> None:
    files = written(tmp_path, certificate_file=CERTIFICATE, key_password_file="wrong")
    for key, text in (
        (
            key_pem(PrivateFormat.PKCS8, "x"),
            "the password in key_password_file does not decrypt it",
        ),
        (KEY, "has no password: remove key_password_file"),
    ):
        with pytest.raises(SecurityError, match=text):
            access(protocol="SSL", **files, **written(tmp_path, key_file=key))


def test_key_is_a_secret_line_by_line(tmp_path: Path) -> None:
    files = written(tmp_path, certificate_file=CERTIFICATE, key_file=KEY)

    assert KEY.splitlines()[1:-1] == access(protocol="SSL", **files).secrets


def test_password_file_may_end_with_a_line_break_and_keeps_its_blanks(tmp_path: Path) -> None:
    files = written(tmp_path, password_file=" pass word \r\n")

    assert " pass word " == access(**SCRAM, **files).password


def test_blanks_around_a_password_of_the_environment_are_part_of_it() -> None:
    text = spec_yaml(kafka__security={**SCRAM, "password": "${PASSWORD}"})
    security = spec_from_yaml(text, {"PASSWORD": " x "}).kafka.security

    assert " x " == kafka_access("b:1", security).password


# --- A secret shows nowhere


@pytest.mark.parametrize(
    "changed",
    [
        {"kafka__security": {**SCRAM, "password": SECRET, "scope": "x"}},
        {"kafka__security": {**SCRAM, "pasword": SECRET}},
        {"kafka__security": {**SCRAM, "password": {"is": SECRET}}},
        {"kafka__security": {**SCRAM, "password": [SECRET]}},
        {"kafka__security": {**SCRAM, "password": SECRET + "\n"}},
        {"kafka__security": SECRET},
        {"kafka__security": [SECRET]},
        {"kafka__security": {**OAUTH, "token_endpoint": f"https://u:{SECRET}@h/"}},
        {"kafka__security": {**OAUTH, "token_endpoint": "https://u:abc@h/"}},
        {"kafka__bootstrap_servers": "x,u:abc@host:9092"},
        {"checkpoint": "s3a://id:abc@bucket/path"},
    ],
)
def test_errors_of_a_spec_contain_no_possible_secret(changed: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as error:
        plan(**changed)
    text = f"{error.value} {error.value!r} {error.value.__cause__}"

    assert SECRET not in text
    assert "a\\" not in text
    assert "abc" not in text


def test_error_of_a_number_for_a_password_does_not_contain_it() -> None:
    assert "4711" not in refused(**SCRAM, password=4711)


def test_neither_plan_nor_model_nor_access_print_a_secret() -> None:
    planned = plan(kafka__security={**SCRAM, "password": SECRET})
    made = kafka_access("b:1", planned.security)

    assert SECRET == made.password
    for text in (explained(planned), repr(planned), str(planned.security), repr(made)):
        assert SECRET not in text
        assert 'a"b' not in text


def test_plan_describes_the_connection_to_kafka() -> None:
    planned = plan(kafka__security={**SCRAM, "password": SECRET})

    assert "localhost:9092, SASL_SSL, SCRAM-SHA-512 as ada" in explained(planned)
    assert "localhost:9092, unencrypted and without login" in explained(plan())
    clear = {**SCRAM, "protocol": "SASL_PLAINTEXT", "password": SECRET}
    assert "SASL_PLAINTEXT, SCRAM-SHA-512 as ada, unencrypted" in explained(
        plan(kafka__security=clear)
    )
