"""Which schema a side is read by, and what a spec, a plan and a checkpoint make of it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from job.__main__ import app
from job.errors import CheckpointError, SpecError
from job.formats import avro
from job.formats.decoded_json import json_text
from job.formats.pinning import check_schema_evolution, reader_schemas
from job.formats.registry import RegistryAccess
from job.plan.explain import explained, plan_as_json
from job.plan.fingerprint import fingerprint, incompatible_changes
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan
from job.spec.spec import JoinSpec, spec_from_yaml
from job.sql.types import TIMESTAMP
from tests.registry_stub import RegistryStub
from tests.sql_worker import SQL
from tests.unit.formats.written import CLICK, avro_schema, bare_fields, field, record
from tests.unit.formats.written import avro as avro_value
from tests.unit.specs import spec_yaml

ROOT = Path(__file__).parents[3]
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
IMPRESSION = record(
    field("ad_id", "long"), field("shown_at", MILLIS), field("cost", ["null", "double"])
)


@pytest.fixture
def registry() -> Iterator[RegistryStub]:
    with RegistryStub() as stub:
        stub.register("impressions-value", IMPRESSION)
        stub.register("clicks-value", CLICK, "PROTOBUF")
        yield stub


def text(registry: RegistryStub, **changes: Any) -> str:
    formats = {
        "left__format": "avro",
        "left__schema": None,
        "right__format": "protobuf",
        "right__schema": None,
        "schema_registry": {"url": registry.url},
    }
    # None is what `changed` removes, and the base has none to remove.
    absent = {name for name, value in changes.items() if name == "schema_registry" and not value}
    return spec_yaml(
        **{name: value for name, value in {**formats, **changes}.items() if name not in absent}
    )


def spec(registry: RegistryStub, **changes: Any) -> JoinSpec:
    return spec_from_yaml(text(registry, **changes), {})


def plan(made: JoinSpec) -> JoinPlan:
    return join_plan(made, SQL, state_partitions=2, readers=reader_schemas(made, SQL))


def problems(made: JoinSpec) -> dict[str, str]:
    with pytest.raises(SpecError) as raised:
        plan(made)
    return {problem.field: problem.message for problem in raised.value.problems}


def test_columns_are_those_of_the_registry_if_the_spec_has_none(registry: RegistryStub) -> None:
    made = plan(spec(registry))

    assert ("ad_id", "shown_at", "cost") == made.left.schema.names
    assert TIMESTAMP == made.right.schema.columns[1].type
    assert "Avro, subject impressions-value, schema 1 (version 1)" in explained(made)
    assert {"left": 1, "right": 2} == {
        side: values["schema_id"] for side, values in plan_as_json(made)["values"].items()
    }


def test_written_columns_alone_are_taken_of_wider_types(registry: RegistryStub) -> None:
    registry.register("plain", record(field("n", "int"), field("at", "long"), field("u", "null")))
    made = spec(
        registry,
        left__subject="plain",
        left__schema="at TIMESTAMP, n BIGINT",
        left__event_time="at",
        left__key=["n"],
        output__columns={"n": "left.n"},
    )

    assert ("at", "n") == plan(made).left.schema.names


def test_declared_struct_of_another_case_is_decoded(registry: RegistryStub) -> None:
    city = record(field("city", "string"), name="shop.City")
    row = record(
        *IMPRESSION["fields"],
        field("home", city),
        field("visited", {"type": "array", "items": "shop.City"}),
    )
    registry.register("impressions-value", row)
    declared = "home STRUCT<CITY: STRING>, visited ARRAY<STRUCT<City: STRING>>"
    written = f"ad_id BIGINT, shown_at TIMESTAMP, {declared}"
    made = plan(spec(registry, left__schema=written, output__columns={"n": "left.ad_id"}))
    reader = made.left.reader
    assert reader is not None
    visits: dict[str, Any] = {"home": {"city": "Ulm"}, "visited": [{"city": "Bonn"}]}
    older = record(*row["fields"][1:], field("ad_id", "int"))

    for writer, schema in ((reader.schema, row), (avro_schema(older, 9), older)):
        bare = {**schema, "fields": bare_fields(schema)}
        value = avro_value(bare, ad_id=1, shown_at=2, cost=None, **visits)
        decoded = avro.decoding(writer, reader)(value)

        assert visits == {name: decoded[name] for name in visits}
        kinds = dict(reader.decoded.fields)
        assert visits.items() <= json.loads(json_text(decoded, kinds) or "").items()


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("ad_id STRING, shown_at TIMESTAMP", "is BIGINT in subject impressions-value"),
        ("AD_ID BIGINT, shown_at TIMESTAMP", r"is not a field .* it has ad_id, shown_at, cost"),
        ("cost TIMESTAMP", "is DOUBLE in subject"),
    ],
)
def test_declared_columns_are_checked_against_the_registry(
    registry: RegistryStub, written: str, says: str
) -> None:
    import re

    assert re.search(says, problems(spec(registry, left__schema=written))["left.schema"])


def test_field_that_no_column_has_is_refused_by_name(registry: RegistryStub) -> None:
    registry.register("odd", record(field("n", ["int", "string"]), field("at", MILLIS)))

    with pytest.raises(
        SpecError, match=r"left\.schema: has an unsupported type in subject odd: .*\(written: n"
    ):
        plan(spec(registry, left__subject="odd"))


def test_subject_that_is_missing_or_of_another_format_is_named(registry: RegistryStub) -> None:
    found = problems(spec(registry, left__subject="nowhere", right__subject="impressions-value"))

    assert "does not exist in schema registry" in found["left.subject"]
    assert "has type AVRO in the registry, and `format` is protobuf" == found["right.subject"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"schema_registry": None}, "has format avro and no schema_registry, which it requires"),
        ({"left__format": "json"}, "has no `schema`, which json requires"),
        ({"left__format": "xml"}, "must be one of 'json'"),
        ({"schema_registry": {"url": "localhost:8081"}}, "is not a URL such as"),
        ({"schema_registry": {"url": "https://a:hush@b"}}, "contains a user name or password"),
        ({"schema_registry": {"url": "http://b", "ca_file": "ca.pem"}}, "ca_file has no effect"),
        (
            {"schema_registry": {"url": "http://b", "username": "a", "password": "hush"}},
            "must begin with https://",
        ),
        (
            {"schema_registry": {"url": "https://b", "username": "a"}},
            "needs both or neither",
        ),
        ({"schema_registry": {"url": "https://b", "passwrd": "hush"}}, "unknown field"),
    ],
)
def test_contradictory_spec_is_refused_without_its_secret(
    registry: RegistryStub, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(SpecError) as raised:
        spec(registry, **changes)

    assert says in str(raised.value)
    assert "hush" not in str(raised.value)


def test_registry_that_no_side_uses_is_refused() -> None:
    with pytest.raises(SpecError, match="has a schema_registry that no side and no output uses"):
        spec_from_yaml(spec_yaml(schema_registry={"url": "http://localhost:8081"}), {})


def test_plan_without_a_registry_requires_the_columns(registry: RegistryStub) -> None:
    made = spec(registry)

    with pytest.raises(SpecError, match=r"left\.schema: is required here, because no registry"):
        join_plan(made, SQL, state_partitions=2)


# What the checkpoint freezes.


def evolved(registry: RegistryStub, *added: dict[str, Any]) -> JoinPlan:
    registry.register("impressions-value", record(*IMPRESSION["fields"], *added))
    return plan(spec(registry))


def test_newer_schema_that_reads_all_of_the_old_one_is_proven(registry: RegistryStub) -> None:
    frozen = fingerprint(plan(spec(registry)))
    made = evolved(registry, field("more", "int", default=0))

    renewed = check_schema_evolution(frozen, made.readers, RegistryAccess(registry.url))

    assert fingerprint(made) == renewed
    assert ("1", "3") == (frozen["left.schema_id"], renewed["left.schema_id"])
    assert [] == incompatible_changes(made, frozen)


def test_newer_schema_that_does_not_is_refused_with_the_remedy(registry: RegistryStub) -> None:
    frozen = fingerprint(plan(spec(registry)))
    made = evolved(registry, field("more", "int"))

    with pytest.raises(
        CheckpointError, match=r"started with schema 1.*field more: is missing.*BACK"
    ):
        check_schema_evolution(frozen, made.readers, RegistryAccess(registry.url))


def test_what_may_depend_on_a_value_is_no_proof(registry: RegistryStub) -> None:
    frozen = fingerprint(plan(spec(registry)))
    registry.register(
        "impressions-value", record(*IMPRESSION["fields"][:2], field("cost", "double"))
    )

    with pytest.raises(CheckpointError, match="field cost: null cannot be read as double"):
        check_schema_evolution(frozen, plan(spec(registry)).readers, RegistryAccess(registry.url))


def test_old_schema_that_is_gone_is_no_proof(registry: RegistryStub) -> None:
    made = plan(spec(registry))
    frozen = {**fingerprint(made), "left.schema_id": "77"}

    with pytest.raises(CheckpointError, match="it is no longer in the registry"):
        check_schema_evolution(frozen, made.readers, RegistryAccess(registry.url))


def test_column_in_state_of_another_type_is_refused_whatever_the_schemas(
    registry: RegistryStub,
) -> None:
    first = plan(spec(registry))
    wider = replace(first.left.kept_columns[0], type="DOUBLE")
    made = replace(first, left=replace(first.left, kept_columns=(wider,)))

    assert ["left.state_columns"] == [
        change.field for change in incompatible_changes(made, fingerprint(first))
    ]


# Commands.


def streamjoin(tmp_path: Path, written: str, *arguments: str) -> tuple[int, str]:
    path = tmp_path / "join.yaml"
    path.write_text(written)
    command, *rest = arguments
    done = CliRunner().invoke(app, [command, str(path), *rest])
    return done.exit_code, done.output


COLUMNS = {
    "left__schema": "ad_id BIGINT, shown_at TIMESTAMP, cost DOUBLE",
    "right__schema": "ad_id BIGINT, clicked_at TIMESTAMP, user STRING",
}


def test_plan_has_the_pinned_schema_or_that_the_registry_was_not_reached(
    registry: RegistryStub, tmp_path: Path
) -> None:
    written = text(registry, **COLUMNS)
    code, said = streamjoin(tmp_path, written, "plan", "--full")
    assert (0, True) == (code, "subject clicks-value, schema 2 (version 1)" in said)

    registry.broken = (503, "")
    code, said = streamjoin(tmp_path, written, "plan", "--full")
    assert (0, True) == (
        code,
        "the newest one when the job starts (the registry was not read)" in said,
    )
    assert "not compared with the schema registry" in said

    code, said = streamjoin(tmp_path, text(registry), "plan")
    assert (1, True) == (code, f"schema registry {registry.url} answers" in said)
    assert "Traceback" not in said


@pytest.mark.processes
def test_job_does_not_start_without_its_registry(registry: RegistryStub, tmp_path: Path) -> None:
    registry.broken = (503, "")

    path = tmp_path / "join.yaml"
    path.write_text(text(registry, **COLUMNS))
    done = subprocess.run(
        [sys.executable, "-m", "job", "run", str(path)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert (1, True) == (done.returncode, "HTTP 503" in done.stderr), done.stderr


def test_spec_tests_are_rows_after_decoding_and_need_the_columns(
    registry: RegistryStub, tmp_path: Path
) -> None:
    at = "2026-01-01T00:00:00Z"
    case = {
        "name": "a click finds its impression",
        "left": [{"ad_id": 1, "shown_at": at, "cost": 2.5}],
        "right": [{"ad_id": 1, "clicked_at": at, "user": "u"}],
        "output": [{"ad_id": 1, "cost": 2.5, "user": "u"}],
    }
    assert 0 == streamjoin(tmp_path, text(registry, tests=[case]), "test")[0]

    registry.broken = (503, "")
    elsewhere = {"url": registry.url, "username": "u", "password_file": "/nowhere"}
    written = text(registry, tests=[case], schema_registry=elsewhere, **COLUMNS)
    assert 0 == streamjoin(tmp_path, written, "test")[0]
    code, said = streamjoin(tmp_path, text(registry, tests=[case]), "test")
    assert (1, True) == (code, "HTTP 503" in said)
