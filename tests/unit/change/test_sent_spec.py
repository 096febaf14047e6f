"""The spec of a change over HTTP reaches no more than the running spec."""

from copy import deepcopy
from typing import Any

import pytest

from job.change.sent_spec import PlanRequest, WrittenSpec, plan_sent_spec, read_sent_spec
from job.errors import SpecError
from job.spec.spec import spec_from_yaml
from tests.sql_worker import SQL
from tests.unit.specs import spec_yaml

PASSWORD = "pa55word-of-kafka"
ENVIRONMENT = {"KAFKA_PASSWORD": PASSWORD, "OTHER_PASSWORD": "pa55word-of-another"}
KAFKA = {
    "bootstrap_servers": "localhost:9092",
    "security": {
        "protocol": "SASL_SSL",
        "mechanism": "PLAIN",
        "username": "joins",
        "password": "${KAFKA_PASSWORD}",
    },
}


def sent(new: dict[str, Any], **old: Any) -> WrittenSpec:
    """The spec with the fields `new`, sent to a job that runs the spec with the fields `old`."""
    text = spec_yaml(**{"kafka": deepcopy(KAFKA), **old})
    running = WrittenSpec(text, spec_from_yaml(text, ENVIRONMENT))
    fields = {"kafka": deepcopy(KAFKA), **old, "checkpoint": "/checkpoints/next", **new}
    written = spec_yaml(**fields)
    return read_sent_spec(written, running, ENVIRONMENT)


def problems(new: dict[str, Any], **old: Any) -> list[str]:
    with pytest.raises(SpecError) as refused:
        sent(new, **old)
    assert "pa55word" not in str(refused.value)
    return [problem.field for problem in refused.value.problems]


def test_variable_is_replaced_in_the_field_in_which_the_running_spec_has_it() -> None:
    spec = sent({}, output__headers={"origin": "'${OTHER_PASSWORD}'"}).spec

    assert spec.kafka.security is not None
    assert spec.kafka.security.password is not None
    assert PASSWORD == spec.kafka.security.password.get_secret_value()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("output.topic", "${KAFKA_PASSWORD}"),
        ("output.topic", "x-${KAFKA_PASSWORD:-default}"),
        ("output.columns.ad_id", "'${OTHER_PASSWORD}'"),
        ("checkpoint", "/checkpoints/${KAFKA_PASSWORD}"),
        ("kafka.bootstrap_servers", "${KAFKA_PASSWORD}:9092"),
        ("left.filter", "campaign = '${KAFKA_PASSWORD}'"),
    ],
)
def test_variable_in_another_field_is_refused(field: str, value: str) -> None:
    assert [field] == problems({field.replace(".", "__"): value})


def test_other_variable_in_a_field_with_a_variable_is_refused() -> None:
    headers = {"origin": "'${KAFKA_PASSWORD}'"}
    other = {"origin": "'${KAFKA_PASSWORD}' || '${OTHER_PASSWORD}'"}

    assert ["output.headers.origin"] == problems(
        {"output__headers": other}, output__headers=headers
    )


@pytest.mark.parametrize(
    ("field", "new"),
    [
        ("kafka", {"kafka__bootstrap_servers": "elsewhere:9092"}),
        ("kafka", {"kafka__security": None}),
        ("kafka", {"kafka__security__ca_file": "/etc/shadow"}),
        (
            "schema_registry",
            {"schema_registry": {"url": "http://elsewhere:8081"}, "output__format": "avro"},
        ),
    ],
)
def test_other_servers_and_files_are_refused(field: str, new: dict[str, Any]) -> None:
    assert [field] == problems(new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/checkpoints/tested", "/checkpoints/next"),
        ("/checkpoints/tested/", "/checkpoints/tested_2.b"),
        ("s3a://bucket/tested", "s3a://bucket/next"),
        ("data/tested", "data/next"),
        ("tested", "next"),
    ],
)
def test_folder_next_to_the_running_checkpoint_is_accepted(old: str, new: str) -> None:
    assert new == sent({"checkpoint": new}, checkpoint=old).spec.checkpoint


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/checkpoints/tested", "/other/next"),
        ("/checkpoints/tested", "/checkpoints/tested/next"),
        ("/checkpoints/tested", "/checkpoints/.."),
        ("/checkpoints/tested", "/checkpoints/../next"),
        ("/checkpoints/tested", "checkpoints/next"),
        ("/checkpoints/tested", "/next"),
        ("/tested", "/"),
        ("s3a://bucket/tested", "s3a://other/next"),
        ("s3a://bucket/tested", "/bucket/next"),
        ("tested", "/next"),
    ],
)
def test_folder_elsewhere_is_refused(old: str, new: str) -> None:
    assert ["checkpoint"] == problems({"checkpoint": new}, checkpoint=old)


def test_all_problems_of_the_spec_are_reported() -> None:
    assert ["join.type", "output.topic"] == sorted(
        problems({"join__type": "sideways", "output__topic": ""})
    )


@pytest.mark.parametrize("is_file", [False, True])
def test_problems_of_structure_and_sql_are_reported_together(is_file: bool) -> None:
    old = spec_yaml(kafka=deepcopy(KAFKA))
    new = spec_yaml(
        kafka=deepcopy(KAFKA),
        checkpoint="/checkpoints/next",
        join__type="sideways",
        left__filter="nope > 1",
        right__key=["nope"],
    )
    running = WrittenSpec(old, spec_from_yaml(old, ENVIRONMENT))
    request = PlanRequest(new, running, ENVIRONMENT, state_partitions=2, is_file=is_file)

    with pytest.raises(SpecError) as refused:
        plan_sent_spec(request, SQL)

    assert ["join.type", "left.filter", "right.key[0]"] == sorted(
        problem.field for problem in refused.value.problems
    )


def test_value_of_a_variable_that_is_refused_is_in_no_problem_of_the_sql() -> None:
    old = spec_yaml(kafka=deepcopy(KAFKA))
    new = spec_yaml(
        kafka=deepcopy(KAFKA),
        left__filter="nope > 1",
        output__headers={"a.b": "${KAFKA_PASSWORD} +"},
    )
    running = WrittenSpec(old, spec_from_yaml(old, ENVIRONMENT))

    with pytest.raises(SpecError) as refused:
        plan_sent_spec(PlanRequest(new, running, ENVIRONMENT, state_partitions=2), SQL)

    assert ["left.filter", "output.headers.a.b"] == sorted(
        problem.field for problem in refused.value.problems
    )
    assert PASSWORD not in str(refused.value)
