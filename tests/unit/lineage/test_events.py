"""The events of a join: datasets, schemas, and which columns the output columns depend on."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from openlineage.client import event_v2, facet_v2
from openlineage.client.serde import Serde

from job.lineage.events import PRODUCER, RunEvents
from job.spec.value_schema import RECORD_COLUMNS
from tests.unit.specs import plan

RUN = "0190d5a1-7a6c-7000-8000-000000000001"
AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
KAFKA = "kafka://localhost:9092"


def event(state: str = "START", failure: str | None = None, **changes: Any) -> dict[str, Any]:
    """As the endpoint receives it."""
    made = RunEvents(plan(**changes), "joins").event(state, RUN, AT, failure)
    document: dict[str, Any] = json.loads(Serde.to_json(made))
    return document


def lineage(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = event(**changes)["outputs"][0]["facets"]["columnLineage"]
    return found


def fields(sources: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    return [
        (source["name"], source["field"], change["type"], change["subtype"])
        for source in sources
        for change in source["transformations"]
    ]


def test_event_names_run_job_and_datasets() -> None:
    document = event(dead_letter={"topic": "dead"}, on_bad_record=None)

    assert ("START", "2026-01-31T12:00:00.000Z", RUN) == (
        document["eventType"],
        document["eventTime"],
        document["run"]["runId"],
    )
    assert ("joins", "tested") == (document["job"]["namespace"], document["job"]["name"])
    assert "STREAMING" == document["job"]["facets"]["jobType"]["processingType"]
    producers = {document["producer"], document["job"]["facets"]["jobType"]["_producer"]}
    assert {PRODUCER} == producers
    assert [(KAFKA, "impressions"), (KAFKA, "clicks")] == named(document["inputs"])
    assert [(KAFKA, "attributed"), (KAFKA, "dead")] == named(document["outputs"])


def test_every_topic_of_a_side_is_an_input_with_the_columns_of_the_side() -> None:
    document = event(left__topic=None, left__topics=["eu", "us"])
    assert [(KAFKA, "eu"), (KAFKA, "us"), (KAFKA, "clicks")] == named(document["inputs"])
    eu, us, _ = (each["facets"]["schema"]["fields"] for each in document["inputs"])
    assert eu == us

    facet = document["outputs"][0]["facets"]["columnLineage"]
    topics = {each["name"] for each in facet["fields"]["ad_id"]["inputFields"]}
    assert {"eu", "us"} == topics


def named(datasets: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(dataset["namespace"], dataset["name"]) for dataset in datasets]


@pytest.mark.parametrize(
    ("servers", "namespace"),
    [
        ("a:9093,b:9093", "kafka://a:9093"),
        (" a:9093 , b:9093", "kafka://a:9093"),
        ("[::1]:9092", "kafka://[::1]:9092"),
    ],
)
def test_first_server_names_the_cluster(servers: str, namespace: str) -> None:
    document = event(kafka__bootstrap_servers=servers)

    assert {namespace} == {dataset["namespace"] for dataset in document["inputs"]}


def test_schemas_are_those_of_values_and_results() -> None:
    document = event()
    inputs = [schema_of(dataset) for dataset in document["inputs"]]

    of_record = {column.name for column in RECORD_COLUMNS}
    assert {"ad_id": "BIGINT", "clicked_at": "TIMESTAMP", "user": "STRING"} == {
        name: kind for name, kind in inputs[1].items() if name not in of_record
    }
    assert inputs[1].keys() > of_record
    output = {"ad_id": "BIGINT", "cost": "DOUBLE", "user": "STRING"}
    assert output == schema_of(document["outputs"][0])


def schema_of(dataset: dict[str, Any]) -> dict[str, str]:
    return {field["name"]: field["type"] for field in dataset["facets"]["schema"]["fields"]}


def test_output_column_names_the_columns_of_its_expression() -> None:
    columns = {
        "ad_id": "left.ad_id",
        "label": "concat(left.campaign, '/', right.user)",
        "constant": "1",
        "offset": "right.record_offset",
    }
    by_column = {
        name: fields(of_column["inputFields"])
        for name, of_column in lineage(output__columns=columns)["fields"].items()
    }

    assert {
        "ad_id": [("impressions", "ad_id", "DIRECT", "IDENTITY")],
        "label": [
            ("impressions", "campaign", "DIRECT", "TRANSFORMATION"),
            ("clicks", "user", "DIRECT", "TRANSFORMATION"),
        ],
        "constant": [],
        "offset": [("clicks", "record_offset", "DIRECT", "IDENTITY")],
    } == by_column


def test_keys_times_conditions_and_filters_affect_all_results() -> None:
    found = lineage(
        left__filter="cost > 0",
        join__condition="right.user <> 'bot'",
        output__filter="cost < 10 and user <> 'test'",
    )

    assert [
        ("impressions", "ad_id", "INDIRECT", "JOIN"),
        ("impressions", "cost", "INDIRECT", "FILTER"),
        ("impressions", "shown_at", "INDIRECT", "JOIN"),
        ("clicks", "ad_id", "INDIRECT", "JOIN"),
        ("clicks", "clicked_at", "INDIRECT", "JOIN"),
        ("clicks", "user", "INDIRECT", "FILTER"),
        ("clicks", "user", "INDIRECT", "JOIN"),
    ] == fields(found["dataset"])


def test_self_join_reads_one_dataset() -> None:
    document = event(right__topic="impressions")

    [dataset] = document["inputs"]
    assert {"shown_at", "clicked_at"} <= schema_of(dataset).keys()


def test_failure_is_in_the_event_of_a_failed_run_only() -> None:
    error = event("FAIL", "no broker")["run"]["facets"]["errorMessage"]

    assert ("no broker", "Python") == (error["message"], error["programmingLanguage"])
    assert {} == event("COMPLETE")["run"]["facets"]


def test_events_have_only_fields_of_the_specification() -> None:
    """The client's classes are generated from it, and refuse other and missing fields."""
    document = event("FAIL", "no broker", dead_letter={"topic": "dead"}, on_bad_record=None)

    run, job = document.pop("run"), document.pop("job")
    inputs = [event_v2.InputDataset(**checked(dataset)) for dataset in document.pop("inputs")]
    outputs = [event_v2.OutputDataset(**checked(dataset)) for dataset in document.pop("outputs")]
    state = event_v2.RunState[document.pop("eventType")]
    assert document.pop("schemaURL").startswith("https://openlineage.io/spec/")
    event_v2.RunEvent(
        **document,
        eventType=state,
        run=event_v2.Run(**checked(run)),
        job=event_v2.Job(**checked(job)),
        inputs=inputs,
        outputs=outputs,
    )


FACETS: dict[str, Any] = {
    "schema": facet_v2.schema_dataset.SchemaDatasetFacet,
    "columnLineage": facet_v2.column_lineage_dataset.ColumnLineageDatasetFacet,
    "jobType": facet_v2.job_type_job.JobTypeJobFacet,
    "errorMessage": facet_v2.error_message_run.ErrorMessageRunFacet,
}


def checked(node: dict[str, Any]) -> dict[str, Any]:
    """`node` with each facet as an instance of its class."""
    facets = {
        name: FACETS[name](**{key: value for key, value in facet.items() if key[0] != "_"})
        for name, facet in node["facets"].items()
    }
    return {**{key: value for key, value in node.items() if key[0] != "_"}, "facets": facets}
