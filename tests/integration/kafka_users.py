"""Users of the secured broker, one for each way to authenticate, and the rights that the join
needs."""

from pathlib import Path

from tests.integration.pairs import Pairs
from tests.integration.secured_kafka import LOGIN, MUTUAL, PLAIN_USER, SecuredKafka
from tests.integration.token_endpoint import TokenEndpoint
from tests.unit.specs import changed

# Contains each character that some syntax on the way could misread.
SECRET = "Pa\"s\\s//w;o'r$d\u00e9"
WRONG = "Wr\"o\\ng//s;e'c$ret"
KEY_PASSWORD = "open sesame 4711"
CLIENT = "oscar"
COMPACTED = {"cleanup.policy": "compact"}


class User:
    """A user of the broker, and the spec's settings for it."""

    def __init__(self, principal: str, servers: str, **security: str) -> None:
        self.principal = principal
        self.servers = servers
        self.security = security


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def scram(kafka: SecuredKafka, folder: Path, name: str, password: str = SECRET) -> User:
    kafka.set_password(name, password)
    return User(
        f"User:{name}",
        kafka.servers_of(LOGIN),
        protocol="SASL_SSL",
        mechanism="SCRAM-SHA-512",
        username=name,
        password_file=written(folder, "password", password + "\n"),
        ca_file=str(kafka.authority.file),
    )


def plain(kafka: SecuredKafka) -> User:
    return User(
        f"User:{PLAIN_USER}",
        kafka.servers_of(LOGIN),
        protocol="SASL_SSL",
        mechanism="PLAIN",
        username=PLAIN_USER,
        password=SECRET,
        ca_file=str(kafka.authority.file),
    )


def mutual(kafka: SecuredKafka, folder: Path) -> User:
    certificate, key = kafka.authority.issue("carol", password=KEY_PASSWORD.encode())
    return User(
        "User:CN=carol",
        kafka.servers_of(MUTUAL),
        protocol="SSL",
        certificate_file=str(certificate),
        key_file=str(key),
        key_password_file=written(folder, "key_password", KEY_PASSWORD + "\n"),
        ca_file=str(kafka.authority.file),
    )


def oauth(kafka: SecuredKafka, tokens: TokenEndpoint, folder: Path) -> User:
    return User(
        f"User:{CLIENT}",
        kafka.servers_of(LOGIN),
        protocol="SASL_SSL",
        mechanism="OAUTHBEARER",
        client_id=CLIENT,
        client_secret_file=written(folder, "client_secret", SECRET + "\n"),
        token_endpoint=tokens.token_url,
        ca_file=str(kafka.authority.file),
    )


def spec_of(pairs: Pairs, user: User, **security: str | None) -> str:
    """As `user`, with fields of its security replaced; None removes one."""
    fields = {
        name: value for name, value in {**user.security, **security}.items() if value is not None
    }
    return changed(pairs.spec(), kafka__bootstrap_servers=user.servers, kafka__security=fields)


def allow_what_the_join_needs(kafka: SecuredKafka, user: User, pairs: Pairs) -> None:
    """The list of docs/kafka-security.md, without the rows of commands."""
    kafka.allow(user.principal, "Read", f"{pairs.name}.left")
    kafka.allow(user.principal, "Read", f"{pairs.name}.right")
    kafka.allow(user.principal, "Write", f"{pairs.name}.out")
    kafka.allow_group(user.principal, f"streamjoin-{pairs.name}")
    if pairs.delivery == "exactly_once":
        kafka.create_topics([f"{pairs.name}.commits"], partitions=2, config=COMPACTED)
        for operation in ("Read", "Write", "DescribeConfigs"):
            kafka.allow(user.principal, operation, f"{pairs.name}.commits")
        kafka.allow_transactions(user.principal, f"streamjoin-{pairs.name}-")
