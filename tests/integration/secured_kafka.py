"""A broker with authentication and authorization, and its users.

The open listener is for the tests themselves: its clients may do everything.
"""

from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from deploy.local.kafka import JVM_OPTIONS, EmbeddedKafka
from job.kafka.security import jaas
from job.spec.security import Mechanism
from tests.integration.certificates import Authority
from tests.integration.token_endpoint import AUDIENCE, TokenEndpoint

ANSWER_SECONDS = 30.0
LOGIN = "LOGIN"
"""The listener for passwords and tokens, over TLS."""
MUTUAL = "MUTUAL"
"""The listener for certificates."""
PLAIN_USER = "paul"
OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}


class SecuredKafka(EmbeddedKafka):
    def __init__(self, folder: Path, tokens: TokenEndpoint, *, plain_password: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = Authority(folder)
        users = {
            "username": "unused",
            "password": "unused",
            f"user_{PLAIN_USER}": plain_password,
        }
        login = f"listener.name.{LOGIN.lower()}"
        handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        super().__init__(
            folder,
            listeners={LOGIN: "SASL_SSL", MUTUAL: "SSL"},
            jvm_options=(
                *JVM_OPTIONS,
                f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens.keys_url}",
            ),
            settings={
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
                "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN,OAUTHBEARER",
                f"{login}.scram-sha-512.sasl.jaas.config": jaas(Mechanism.SCRAM_SHA_512, {}),
                f"{login}.plain.sasl.jaas.config": jaas(Mechanism.PLAIN, users),
                f"{login}.oauthbearer.sasl.jaas.config": jaas(Mechanism.OAUTHBEARER, {}),
                f"{login}.oauthbearer.sasl.server.callback.handler.class": handler,
                f"{login}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": tokens.keys_url,
                f"{login}.oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
                f"listener.name.{MUTUAL.lower()}.ssl.client.auth": "required",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": self.authority.issue_in_one_file("broker"),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": self.authority.file,
            },
        )

    def set_password(self, user: str, password: str) -> None:
        """Set the password of a SCRAM user, and create the user if it does not exist."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        upsertion = UserScramCredentialUpsertion(user, info, password.encode())
        admin = self._admin()
        for future in admin.alter_user_scram_credentials([upsertion]).values():
            future.result(ANSWER_SECONDS)

    def allow(self, principal: str, operation: str, topic: str) -> None:
        self._add(_acl(principal, operation, topic))

    def allow_group(self, principal: str, group: str) -> None:
        self._add(_acl(principal, "Read", group, ResourceType.GROUP))

    def allow_transactions(self, principal: str, prefix: str) -> None:
        kind, pattern = ResourceType.TRANSACTIONAL_ID, ResourcePatternType.PREFIXED
        self._add(_acl(principal, "Write", prefix, kind, pattern))

    def forbid(self, principal: str, operation: str, topic: str) -> None:
        """Remove a right."""
        acl = _acl(principal, operation, topic)
        same = AclBindingFilter(
            acl.restype,
            acl.name,
            acl.resource_pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        admin = self._admin()
        for future in admin.delete_acls([same]).values():
            assert 1 == len(future.result(ANSWER_SECONDS))

    def _add(self, acl: AclBinding) -> None:
        admin = self._admin()
        for future in admin.create_acls([acl]).values():
            future.result(ANSWER_SECONDS)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})


def _acl(
    principal: str,
    operation: str,
    name: str,
    kind: ResourceType = ResourceType.TOPIC,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> AclBinding:
    return AclBinding(
        kind,
        name,
        pattern,
        principal,
        "*",
        OPERATIONS[operation],
        AclPermissionType.ALLOW,
    )
