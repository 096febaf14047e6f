"""Kafka's security settings for both clients, librdkafka and Java, from one model.

The settings contain the contents of the files, not their paths, so they can be sent to another
machine. They are secret: created right before a client, and never stored in a plan, a log or a
response.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from job.errors import SecurityError
from job.formats.registry import RegistryAccess, registry_access
from job.spec.registry import SchemaRegistrySpec
from job.spec.security import KafkaSecurity, Mechanism, text_without_controls

_JAVA = "org.apache.kafka.common.security"
_LOGIN_MODULES = {
    Mechanism.PLAIN: f"{_JAVA}.plain.PlainLoginModule",
    Mechanism.SCRAM_SHA_256: f"{_JAVA}.scram.ScramLoginModule",
    Mechanism.SCRAM_SHA_512: f"{_JAVA}.scram.ScramLoginModule",
    Mechanism.OAUTHBEARER: f"{_JAVA}.oauthbearer.OAuthBearerLoginModule",
    Mechanism.AWS_MSK_IAM: "software.amazon.msk.auth.iam.IAMLoginModule",
}


@dataclass(frozen=True, repr=False)
class KafkaAccess:
    """Addresses and credentials of the brokers and the registry, read from their files."""

    bootstrap_servers: str
    security: KafkaSecurity | None = None
    password: str | None = None
    """Password of the user, or secret of the OAuth client."""
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    """PKCS#8 without password, in whatever form the file has it: see `_key`."""
    key_password: str | None = None
    aws_secrets: tuple[str, ...] = ()
    """Secret key and session token of the AWS credentials at the time of reading. The clients find
    the credentials themselves, whenever they need them."""
    registry: RegistryAccess | None = None

    @property
    def secrets(self) -> list[str]:
        """Values that redaction.py removes from all output."""
        lines = (self.key or "").splitlines()
        key_lines = [line for line in lines if line.strip() and not line.startswith("-----")]
        registered = self.registry.secrets if self.registry is not None else []
        known = (self.password, self.key_password, *key_lines, *self.aws_secrets, *registered)
        return [secret for secret in known if secret]


def kafka_access(
    bootstrap_servers: str,
    security: KafkaSecurity | None,
    schema_registry: SchemaRegistrySpec | None = None,
) -> KafkaAccess:
    """Read the files of both arguments. Raises SecurityError if one cannot be used, BrokerError if
    AWS does not answer.

    Called at each start of the query: a changed password takes effect with a restart.
    """
    registry = registry_access(schema_registry)
    if security is None:
        return KafkaAccess(bootstrap_servers, registry=registry)
    key_password = _secret(security, "key_password_file")
    return KafkaAccess(
        bootstrap_servers,
        security,
        password=_password(security),
        ca=_pem(security, "ca_file", "CERTIFICATE"),
        certificate=_pem(security, "certificate_file", "CERTIFICATE"),
        key=_key(security, key_password),
        key_password=key_password,
        aws_secrets=_aws_secrets(security),
        registry=registry,
    )


def librdkafka_settings(access: KafkaAccess) -> dict[str, Any]:
    """Settings of confluent-kafka's clients. Text, except for the function `oauth_cb`."""
    settings: dict[str, Any] = {"bootstrap.servers": access.bootstrap_servers}
    security = access.security
    if security is None:
        return settings
    settings["security.protocol"] = security.protocol.value
    if security.protocol.is_encrypted:
        settings |= _known(
            {
                "ssl.endpoint.identification.algorithm": "https",
                "ssl.ca.pem": access.ca,
                "ssl.certificate.pem": access.certificate,
                "ssl.key.pem": access.key,
            }
        )
    if security.mechanism is Mechanism.OAUTHBEARER:
        settings |= _known(
            {
                "sasl.mechanism": security.mechanism.value,
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": security.client_id,
                "sasl.oauthbearer.client.secret": access.password,
                "sasl.oauthbearer.token.endpoint.url": security.token_endpoint,
                "sasl.oauthbearer.scope": security.scope,
            }
        )
    elif security.mechanism is Mechanism.AWS_MSK_IAM:
        settings |= {
            "sasl.mechanism": Mechanism.OAUTHBEARER.value,  # as MSK accepts it without Java
            "oauth_cb": partial(_msk().token, security.region, security.role_arn),
        }
    elif security.mechanism is not None:
        settings |= _known(
            {
                "sasl.mechanism": security.mechanism.value,
                "sasl.username": security.username,
                "sasl.password": access.password,
            }
        )
    return settings


def spark_options(access: KafkaAccess) -> dict[str, str]:
    """Options for Spark's Kafka source and sink, in addition to those of the plan."""
    security = access.security
    if security is None:
        return {}
    settings: dict[str, str] = {"security.protocol": security.protocol.value}
    if security.protocol.is_encrypted:
        settings |= {"ssl.endpoint.identification.algorithm": "https"}
        if access.ca is not None:
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": access.ca}
        if access.certificate is not None and access.key is not None:
            settings |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": access.certificate,
                "ssl.keystore.key": access.key,
            }
    if security.mechanism is not None:
        settings["sasl.mechanism"] = security.mechanism.value
        settings["sasl.jaas.config"] = jaas(security.mechanism, _jaas_options(access, security))
    if security.mechanism is Mechanism.OAUTHBEARER:
        assert security.token_endpoint is not None
        settings |= {
            "sasl.oauthbearer.token.endpoint.url": security.token_endpoint,
            "sasl.login.callback.handler.class": (
                f"{_JAVA}.oauthbearer.OAuthBearerLoginCallbackHandler"
            ),
        }
    if security.mechanism is Mechanism.AWS_MSK_IAM:
        handler = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
        settings["sasl.client.callback.handler.class"] = handler
    return {f"kafka.{name}": value for name, value in settings.items()}


def jaas(mechanism: Mechanism, options: Mapping[str, str]) -> str:
    """A line of sasl.jaas.config, as Kafka's JaasConfig reads it."""
    written = "".join(f" {name}={_quoted(value)}" for name, value in options.items())
    return f"{_LOGIN_MODULES[mechanism]} required{written};"


def _quoted(value: str) -> str:
    """One token for Java's StreamTokenizer, for any value without control characters.

    Without quotes a / would begin a comment and a ; end the line.
    """
    escaped = text_without_controls(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _jaas_options(access: KafkaAccess, security: KafkaSecurity) -> dict[str, str]:
    if security.mechanism is Mechanism.OAUTHBEARER:
        return _known(
            {
                "clientId": security.client_id,
                "clientSecret": access.password,
                "scope": security.scope,
            }
        )
    if security.role_arn is not None:
        assert security.region is not None
        return {
            "awsRoleArn": security.role_arn,
            "awsRoleSessionName": _msk().SESSION,
            "awsStsRegion": security.region,
        }
    return _known({"username": security.username, "password": access.password})


def _aws_secrets(security: KafkaSecurity) -> tuple[str, ...]:
    if security.mechanism is not Mechanism.AWS_MSK_IAM:
        return ()
    found = _msk().credentials(security.region, security.role_arn)
    return tuple(secret for secret in (found.secret_key, found.token) if secret)


def _msk() -> Any:
    try:
        from job.kafka import msk
    except ModuleNotFoundError as error:
        raise SecurityError(
            "kafka.security.mechanism AWS_MSK_IAM needs Amazon's libraries "
            f"({error}): install `streamjoin[msk]`"
        ) from None
    return msk


def _known(settings: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if value is not None}


def _password(security: KafkaSecurity) -> str | None:
    for field in ("password", "client_secret"):
        if (secret := getattr(security, field)) is not None:
            return str(secret.get_secret_value())
    return _secret(security, "password_file") or _secret(security, "client_secret_file")


def _secret(security: KafkaSecurity, field: str) -> str | None:
    text = _text(security, field)
    if text is None:
        return None
    # Editors and `echo` end a file with a line break; a password contains none.
    secret = text.removesuffix("\n").removesuffix("\r")
    try:
        return text_without_controls(secret)
    except ValueError as error:
        raise _error(security, field, str(error)) from None


def _pem(security: KafkaSecurity, field: str, kind: str) -> str | None:
    text = _text(security, field)
    if text is not None and f"-----BEGIN {kind}-----" not in text:
        raise _error(security, field, f"does not contain `-----BEGIN {kind}-----`: it must be PEM")
    return text


def _key(security: KafkaSecurity, password: str | None) -> str | None:
    """The private key in the form that both clients read.

    Java requires PKCS#8, and before Java 19 cannot decrypt keys that openssl 3 has encrypted.
    """
    text = _text(security, "key_file")
    if text is None:
        return None
    if password is None and "ENCRYPTED" in text:
        raise _error(security, "key_file", "is encrypted: set key_password_file")
    if password is not None and "ENCRYPTED" not in text:
        raise _error(security, "key_file", "has no password: remove key_password_file")
    try:
        key = load_pem_private_key(text.encode(), password.encode() if password else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        reason = "contains no private key in PEM"
        if password is not None:
            reason += ", or the password in key_password_file does not decrypt it"
        raise _error(security, "key_file", reason) from None
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _text(security: KafkaSecurity, field: str) -> str | None:
    path: str | None = getattr(security, field)
    if path is None:
        return None
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise _error(security, field, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise _error(security, field, "is not text in UTF-8") from None
    if not text.strip("\r\n"):
        raise _error(security, field, "is empty")
    return text


def _error(security: KafkaSecurity, field: str, message: str) -> SecurityError:
    return SecurityError(f"kafka.security.{field} {getattr(security, field)} {message}")
