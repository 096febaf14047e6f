"""A broker with authentication and authorization: the join runs, or reports what is missing."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from job.dataflow.written import TopicLimits
from job.delivery.topic_limits import limits_of
from job.errors import BrokerError, SecurityError, StreamjoinError
from job.kafka.acls import missing_rights
from job.kafka.clients import ANSWER_SECONDS
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.preflight import TopicsSnapshot, check_topics
from job.kafka.security import kafka_access
from job.plan.planner import join_plan
from job.redaction import MARK
from job.spec.spec import JoinSpec, spec_from_yaml
from tests.integration.certificates import Authority
from tests.integration.forks import fork_server
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.jvms import SharedJvm
from tests.integration.kafka_users import (
    CLIENT,
    SECRET,
    WRONG,
    User,
    allow_what_the_join_needs,
    mutual,
    oauth,
    plain,
    scram,
    spec_of,
    written,
)
from tests.integration.pairs import Pairs
from tests.integration.real_time_topics import wait_for_intervals
from tests.integration.secrets_shown import (
    answers,
    assert_hides_secrets,
    command_lines,
    contents,
    job_answers,
)
from tests.integration.secured_kafka import LOGIN, SecuredKafka
from tests.integration.services import running_service
from tests.integration.token_endpoint import TokenEndpoint, token_endpoint
from tests.polling import wait_until
from tests.sql_worker import SQL
from tests.unit.specs import changed

# Kafka's own words in its errors: as passwords, they show whether errors are redacted.
LOGIN_ERROR = "invalid credentials"
RIGHTS_ERROR = "Not authorized"

MSK: Any = (
    {"mechanism": "AWS_MSK_IAM", "region": "eu-west-1", "username": None, "password": None},
    "AWS_MSK_IAM in eu-west-1",
)


@pytest.fixture(scope="module")
def tokens() -> Iterator[TokenEndpoint]:
    with token_endpoint(CLIENT, SECRET) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def secured(
    tokens: TokenEndpoint, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredKafka]:
    folder = tmp_path_factory.mktemp("secured")
    with SecuredKafka(folder, tokens, plain_password=SECRET) as kafka:
        yield kafka


def pairs_of(
    kafka: SecuredKafka,
    folder: Path,
    request: pytest.FixtureRequest,
    delivery: str = "at_least_once",
) -> Pairs:
    name = f"secured{crc32(request.node.name.encode())}"
    pairs = Pairs(kafka, name, folder, delivery=delivery)
    pairs.create_topics()
    return pairs


# --- The join runs


@pytest.mark.parametrize(
    ("login", "engine"),
    [
        ("SCRAM-SHA-512", "micro_batch"),
        ("PLAIN", "micro_batch"),
        ("mutual TLS", "micro_batch"),
        ("OAUTHBEARER", "real_time"),
    ],
)
def test_join_runs_with_only_the_rights_it_needs_and_shows_no_secret(
    login: str,
    engine: str,
    secured: SecuredKafka,
    tokens: TokenEndpoint,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    jvm: SharedJvm,
) -> None:
    user = {
        "SCRAM-SHA-512": lambda: scram(secured, tmp_path, "ada"),
        "PLAIN": lambda: plain(secured),
        "mutual TLS": lambda: mutual(secured, tmp_path),
        "OAUTHBEARER": lambda: oauth(secured, tokens, tmp_path),
    }[login]()
    pairs = pairs_of(secured, tmp_path, request, "exactly_once")
    allow_what_the_join_needs(secured, user, pairs)
    spec = spec_of(pairs, user)
    if engine == "real_time":
        real_time = {"checkpoint_interval": "2s"}
        spec = changed(spec, engine=engine, real_time=real_time)

    # OAUTHBEARER needs a system property of the JVM, and the real-time engine more task slots. The
    # command line of a separate JVM is also checked in the next test, with a password.
    shared = None if login == "OAUTHBEARER" else jvm
    with (
        Job(spec, tmp_path, shared) as job,
        running_service(job.socket) as service,
    ):
        if engine == "real_time":
            wait_for_intervals(job)
        pairs.produce(range(3))
        job.wait_for_offsets(left=3, right=3)
        assert_hides_secrets(*command_lines(job), *answers(service.client, spec), *job_answers(job))
        assert 0 == job.terminate()
        assert_hides_secrets(service.log.read_text())
    assert [0, 1, 2] == pairs.numbers()
    for complaint in ("brokers_unreachable", "commit_topic_not_checked"):
        assert complaint not in job.log.read_text()
    assert_hides_secrets(job.log.read_text(), *contents(tmp_path / "checkpoint"))


def test_refused_job_runs_after_a_restart_once_its_access_is_corrected(
    secured: SecuredKafka, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    user = scram(secured, tmp_path, "grace", RIGHTS_ERROR)
    pairs = pairs_of(secured, tmp_path, request)
    password, ca = tmp_path / "password", tmp_path / "ca"
    password.write_text(LOGIN_ERROR)
    ca.write_text(Authority(tmp_path, "stranger").file.read_text())
    spec = spec_of(pairs, user, ca_file=str(ca))

    with (
        Job(spec, tmp_path) as job,
        running_service(job.socket) as service,
    ):

        def failure_after_restart() -> str:
            failures = sum(job.wait_for_state("FAILED").totals.failures.values())
            job.ask("restart")
            return job.wait_for_failure(failures + 1).message

        def restart() -> None:
            job.ask("restart")
            job.wait_for_state("RUNNING")

        failure = job.wait_for_state("FAILED").last_failure
        assert failure is not None
        assert ("security", False) == (failure.code, failure.retryable)
        assert "ca_file must contain the CA that signed" in failure.message

        ca.write_text(secured.authority.file.read_text())
        message = failure_after_restart()
        assert "refuses the login (SASL_SSL, SCRAM-SHA-512 as grace)" in message
        assert f"failed during authentication due to {MARK} with" in message

        password.write_text(RIGHTS_ERROR)
        for operation, field, topic in (
            ("Read", "left.topic", f"{pairs.name}.left"),
            ("Read", "right.topic", f"{pairs.name}.right"),
            ("Write", "output.topic", f"{pairs.name}.out"),
        ):
            message = failure_after_restart()
            assert (
                f"{field} {topic}: kafka-acls.sh --bootstrap-server {user.servers} --add "
                f"--allow-principal 'User:grace' --operation {operation} --topic {topic}"
            ) in message
            secured.allow(user.principal, operation, topic)
            assert_hides_secrets(*answers(service.client, spec))
        restart()
        pairs.produce(range(3))
        job.wait_for_offsets(left=3, right=3)
        assert_hides_secrets(*command_lines(job))

        # Removed while the query runs: now Spark reports the error, with all its options.
        secured.forbid(user.principal, "Write", f"{pairs.name}.out")
        pairs.produce(range(3, 6))
        status = job.wait_for_state("FAILED")
        assert status.last_failure is not None
        assert "security" == status.last_failure.code
        assert f"{MARK} to access topics: [{pairs.name}.out]" in status.last_failure.message
        secured.allow(user.principal, "Write", f"{pairs.name}.out")
        restart()
        job.wait_for_offsets(left=6, right=6)

        # The password changes while the query runs, and every connection is cut.
        secured.set_password("grace", WRONG)
        secured.stop()
        secured.start()
        status = job.wait_for_state("FAILED")
        assert status.last_failure is not None
        assert "security" == status.last_failure.code
        assert_hides_secrets(*answers(service.client, spec), *job_answers(job))

        password.write_text(WRONG)
        restart()
        pairs.produce(range(6, 9))
        job.wait_for_offsets(left=9, right=9)
        assert 0 == job.terminate()
        assert_hides_secrets(service.log.read_text())
    assert set(range(9)) == set(pairs.numbers())
    log = job.log.read_text()
    assert_hides_secrets(log)
    assert LOGIN_ERROR not in log
    assert RIGHTS_ERROR not in log
    assert f"TopicAuthorizationException: {MARK} to access topics" in log  # the JVM's own line


# --- Refused before the start


def refusal(pairs: Pairs, user: User, **security: str | None) -> StreamjoinError:
    spec = spec_from_yaml(spec_of(pairs, user, **security), {})
    with pytest.raises(StreamjoinError) as error:
        check(spec)
    assert_hides_secrets(str(error.value), repr(error.value), str(error.value.__cause__))
    return error.value


def check(spec: JoinSpec) -> TopicsSnapshot:
    access = kafka_access(spec.kafka.bootstrap_servers, spec.kafka.security)
    return check_topics(join_plan(spec, SQL, state_partitions=1), KafkaAdmin(access))


@pytest.fixture
def pairs(secured: SecuredKafka, tmp_path: Path, request: pytest.FixtureRequest) -> Pairs:
    return pairs_of(secured, tmp_path, request)


def test_other_right_is_not_enough(pairs: Pairs, secured: SecuredKafka, tmp_path: Path) -> None:
    user = scram(secured, tmp_path, "mary")
    for part in ("left", "right", "out"):
        secured.allow(user.principal, "Read", f"{pairs.name}.{part}")
    error = refusal(pairs, user)

    assert isinstance(error, SecurityError)
    [line] = [line for line in str(error).splitlines() if "kafka-acls.sh" in line]
    assert line.endswith(f"--operation Write --topic {pairs.name}.out")

    spec = changed(spec_of(pairs, user), output__delivery="exactly_once")
    made = join_plan(spec_from_yaml(spec, {}), SQL, state_partitions=1)
    access = kafka_access(user.servers, made.security)
    assert ["transactional ids"] == [what for what, _ in missing_rights(made, access)]
    secured.allow_transactions(user.principal, f"streamjoin-{pairs.name}-")
    wait_until(lambda: not [*missing_rights(made, access)], 30, "the broker applies the ACLs")


def test_settings_that_the_user_may_not_read_are_taken_for_the_defaults(
    pairs: Pairs, secured: SecuredKafka, tmp_path: Path
) -> None:
    user = scram(secured, tmp_path, "nora")
    for part, operation in (("left", "Read"), ("right", "Read"), ("out", "Write")):
        secured.allow(user.principal, operation, f"{pairs.name}.{part}")
    spec = spec_from_yaml(spec_of(pairs, user), {})

    assert TopicLimits(1_048_588, 0) == limits_of(check(spec))


@pytest.mark.parametrize(("changes", "login"), [({"password": WRONG}, "PLAIN as paul"), MSK])
def test_refused_login_is_reported_at_once(
    pairs: Pairs,
    secured: SecuredKafka,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    login: str,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, SECRET)
    error = refusal(pairs, plain(secured), **changes)

    assert isinstance(error, SecurityError)
    assert f"refuses the login (SASL_SSL, {login})" in str(error)


def test_broker_with_a_certificate_of_an_unknown_authority_is_refused(
    pairs: Pairs, secured: SecuredKafka
) -> None:
    error = refusal(pairs, plain(secured), ca_file=None)

    assert isinstance(error, SecurityError)
    assert f"no TLS with Kafka at {secured.servers_of(LOGIN)}" in str(error)


def test_missing_client_certificate_is_reported(
    pairs: Pairs, secured: SecuredKafka, tmp_path: Path
) -> None:
    bare = {"certificate_file": None, "key_file": None, "key_password_file": None}
    error = refusal(pairs, mutual(secured, tmp_path), **bare)

    assert isinstance(error, SecurityError)
    assert "certificate_file and key_file are required if the broker requests" in str(error)


def test_key_with_a_wrong_password_is_reported(
    pairs: Pairs, secured: SecuredKafka, tmp_path: Path
) -> None:
    wrong = written(tmp_path, "wrong", WRONG)
    error = refusal(pairs, mutual(secured, tmp_path), key_password_file=wrong)

    assert isinstance(error, SecurityError)
    assert "the password in key_password_file does not decrypt it" in str(error)


def test_token_endpoint_that_refuses_the_client_is_reported(
    pairs: Pairs, secured: SecuredKafka, tokens: TokenEndpoint, tmp_path: Path
) -> None:
    """Also if the client learns it before its first question, as on a busy machine."""
    wrong = written(tmp_path, "wrong", WRONG)
    user = oauth(secured, tokens, tmp_path)
    spec = spec_from_yaml(spec_of(pairs, user, client_secret_file=wrong), {})
    admin = KafkaAdmin(kafka_access(user.servers, spec.kafka.security))
    assert admin.client.poll(ANSWER_SECONDS)

    for checked in (admin, KafkaAdmin(admin.access)):
        with pytest.raises(SecurityError) as error:
            check_topics(join_plan(spec, SQL, state_partitions=1), checked)
        assert_hides_secrets(str(error.value), repr(error.value))
        assert f"{tokens.token_url} returns no token" in str(error.value)


def test_unreachable_token_endpoint_is_retryable(
    pairs: Pairs, secured: SecuredKafka, tokens: TokenEndpoint, tmp_path: Path
) -> None:
    error = refusal(
        pairs, oauth(secured, tokens, tmp_path), token_endpoint="http://127.0.0.1:1/token"
    )

    assert isinstance(error, BrokerError)
    assert error.retryable


def test_spec_without_security_gets_a_hint_that_the_broker_may_need_it(
    pairs: Pairs, secured: SecuredKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("job.kafka.kafka_admin.ANSWER_SECONDS", 1.0)
    text = changed(pairs.spec(), kafka__bootstrap_servers=secured.servers_of(LOGIN))
    spec = spec_from_yaml(text, {})
    with pytest.raises(BrokerError, match=r"If it requires TLS or a login, set kafka\.security"):
        check(spec)


# --- Output of the commands


@pytest.mark.parametrize("command", [["validate"], ["plan"], ["plan", "--json"]])
def test_commands_print_no_secret(
    command: list[str], pairs: Pairs, secured: SecuredKafka, tmp_path: Path
) -> None:
    spec = written(tmp_path, "join.yaml", spec_of(pairs, plain(secured)))
    process = fork_server().run(
        [command[0], spec, *command[1:]],
        {**os.environ, "KAFKA_PASSWORD": SECRET},
        timeout=START_SECONDS,
    )
    assert 0 == process.returncode, process.stderr
    assert_hides_secrets(process.stdout, process.stderr)
