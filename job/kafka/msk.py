"""Login to Amazon MSK with IAM: the credentials of this machine, and librdkafka's tokens.

Amazon's SDK finds the credentials: environment, web identity, profile, container or instance.
Imported only for `mechanism: AWS_MSK_IAM`, because its libraries are an extra of the package.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import botocore.session
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from botocore.credentials import CredentialProvider, Credentials
from botocore.exceptions import BotoCoreError, ClientError

from job.errors import BrokerError, SecurityError

SESSION = "streamjoin"
"""Name of the session of an assumed role, in the logs of AWS."""
_THROTTLING = frozenset(
    {
        *("Throttling", "ThrottlingException", "RequestThrottled", "RequestThrottledException"),
        *("RequestLimitExceeded", "TooManyRequestsException", "SlowDown"),
    }
)
"""Codes of errors, with the HTTP status 400, after too many calls."""


def token(region: str, role_arn: str | None, _config: str) -> tuple[str, float]:
    """A token, and the time when it expires in seconds since 1970: the `oauth_cb` of a client.

    Raises the errors of `credentials`.
    """
    text, expires_ms = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(
        region, _Provider(region, role_arn)
    )
    return text, expires_ms / 1000


def credentials(region: str, role_arn: str | None) -> Credentials:
    """Those of this machine, or of the role that they assume.

    Raises SecurityError if there are none or AWS refuses them, BrokerError if AWS does not answer.
    """
    session = botocore.session.get_session()
    with _aws_errors(
        "kafka.security.mechanism AWS_MSK_IAM: AWS refuses the credentials of this machine",
        "Check the profile, the web identity or the role of this machine",
    ):
        found = session.get_credentials()
        own = None if found is None else found.get_frozen_credentials()
    if own is None:
        raise SecurityError(
            "kafka.security.mechanism AWS_MSK_IAM found no AWS credentials: set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role"
        )
    if role_arn is None:
        return own
    with _aws_errors(
        f"kafka.security.role_arn {role_arn} cannot be assumed",
        "Check the ARN and the trust policy of the role",
    ):
        sts = session.create_client("sts", region_name=region)
        made = sts.assume_role(RoleArn=role_arn, RoleSessionName=SESSION)["Credentials"]
    return Credentials(made["AccessKeyId"], made["SecretAccessKey"], made["SessionToken"])


@contextmanager
def _aws_errors(refused: str, remedy: str) -> Iterator[None]:
    """`refused`, `remedy`: what a refusal of AWS means, and what to do."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        if isinstance(error, ClientError) and not _is_busy(error):
            raise SecurityError(f"{refused}: {error}. {remedy}") from error
        raise BrokerError(f"AWS returns no credentials for kafka.security: {error}") from error


def _is_busy(error: ClientError) -> bool:
    """Whether a later call can succeed."""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status >= 500 or error.response.get("Error", {}).get("Code") in _THROTTLING


class _Provider(CredentialProvider):  # type: ignore[misc]  # botocore has no types
    """Credentials in the form that the signer calls for."""

    def __init__(self, region: str, role_arn: str | None) -> None:
        super().__init__()
        self._arguments = region, role_arn

    def load(self) -> Credentials:
        return credentials(*self._arguments)
