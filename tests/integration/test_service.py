"""The service of a real job: its answers and its commands."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from deploy.local.kafka import EmbeddedKafka
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.jvms import SharedJvm
from tests.integration.pairs import T0
from tests.integration.services import running_service
from tests.integration.topics import Sent, consume_all, produce
from tests.polling import wait_until

SPEC = """
name: observed
kafka: {{bootstrap_servers: "{servers}"}}
left: {{topic: observed.left, schema: "k STRING, t TIMESTAMP, a BIGINT", key: [k], event_time: t,
        watermark_delay: 10 seconds}}
right: {{topic: observed.right, schema: "k STRING, t TIMESTAMP", key: [k], event_time: t,
         watermark_delay: 5 seconds}}
join: {{type: left_outer, match_window: {{before: 0 seconds, after: 5 seconds}}}}
output: {{topic: observed.out, columns: {{k: left.k, t: right.t}}, delivery: at_least_once,
          filter: left.a is distinct from 4}}
checkpoint: {checkpoint}
on_bad_record: drop
"""

LEFTS = [
    *({"k": f"k{number}", "t": T0 + number, "a": number} for number in range(5)),
    {"k": None, "t": T0, "a": 1},
    Sent("no json"),
    Sent(None),
    {"k": "x", "t": "soon"},
    {"k": "x"},
    {"k": "x", "t": 253_402_300_800_000},
    {"k": "x", "t": T0, "a": "one"},
    {"k": "closing", "t": T0 + 100_000, "a": 1},
]
RIGHTS = [
    {"k": "k1", "t": T0 + 1000},
    Sent("[]"),
    {"k": "closing", "t": T0 + 100_000},
    # Far behind the watermark when it is read: sent once the previous batches have ended.
]
LATE = {"k": "k2", "t": T0 + 1000}


@pytest.fixture(scope="module")
def job(
    kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory, jvm: SharedJvm
) -> Iterator[Job]:
    folder = tmp_path_factory.mktemp("observed")
    kafka.create_topics({"observed.left": 2, "observed.right": 1, "observed.out": 1})
    produce(kafka.bootstrap_servers, "observed.left", LEFTS)
    produce(kafka.bootstrap_servers, "observed.right", RIGHTS)
    spec = SPEC.format(servers=kafka.bootstrap_servers, checkpoint=folder / "checkpoint")
    with Job(spec, folder, jvm) as job:
        job.wait_for_watermark(T0 + 90_000)
        produce(kafka.bootstrap_servers, "observed.right", [LATE])
        job.wait_for_offsets(left=len(LEFTS), right=len(RIGHTS) + 1)
        yield job


@pytest.fixture(scope="module")
def service(job: Job) -> Iterator[httpx.Client]:
    with running_service(job.socket) as service:
        yield service.client


def samples(service: httpx.Client) -> dict[str, float]:
    """Value of each sample, by its name and labels as `name label=value …`."""
    families = text_string_to_metric_families(service.get("/metrics").text)
    return {_named(sample): sample.value for family in families for sample in family.samples}


def _named(sample: Sample) -> str:
    labels = (f"{label}={value}" for label, value in sorted(sample.labels.items()))
    return " ".join([sample.name, *labels])


def query(service: httpx.Client) -> dict[str, Any]:
    answer: dict[str, Any] = service.get("/v1/query").json()
    return answer


def test_bad_records_are_counted_by_side_and_reason_and_the_query_lives(
    service: httpx.Client, kafka: EmbeddedKafka
) -> None:
    counted = {
        name.removeprefix("streamjoin_bad_records_total "): value
        for name, value in samples(service).items()
        if name.startswith("streamjoin_bad_records_total") and value
    }
    assert {
        "reason=malformed_json side=left": 1,
        "reason=tombstone side=left": 1,
        "reason=unparsable_event_time side=left": 1,
        "reason=missing_event_time side=left": 1,
        "reason=absurd_event_time side=left": 1,
        "reason=schema_mismatch side=left": 1,
        "reason=malformed_json side=right": 1,
    } == counted
    out = consume_all(kafka.bootstrap_servers, "observed.out")
    assert [None, "closing", "k0", "k1", "k2", "k3"] == sorted(
        (received.value["k"] for received in out), key=lambda key: key or ""
    )


def test_every_record_is_counted(service: httpx.Client) -> None:
    values = samples(service)

    assert len(LEFTS) == values["streamjoin_input_records_total side=left"]
    assert len(RIGHTS) + 1 == values["streamjoin_input_records_total side=right"]
    assert 1 == values["streamjoin_null_key_records_total side=left"]
    assert 1 == values["streamjoin_late_rows_total"]
    assert 6 == values["streamjoin_output_records_total"]
    assert 4 == values["streamjoin_unmatched_results_total"]
    assert 1 == values["streamjoin_filtered_results_total"]
    diagnosis = query(service)["diagnosis"]
    assert diagnosis.startswith("54% of the 13 left records cannot match: 1 bad (tombstone)")
    assert 0 == sum(v for name, v in values.items() if "offsets_behind_latest" in name)


def test_seven_measures_of_the_join_operator_are_exported(service: httpx.Client) -> None:
    values = samples(service)

    for measure in (
        "state_update_seconds_total", "state_removal_seconds_total", "state_commit_seconds_total",
        "output_records_total", "state_rows", "state_rows_updated_total", "state_memory_bytes",
    ):  # fmt: skip
        assert values[f"streamjoin_{measure}"] >= 0
    assert 2 == values["streamjoin_state_rows"]  # the closing rows
    # without the row with the null key, which is not stored
    assert 8 == values["streamjoin_state_rows_updated_total"]


def test_watermark_is_that_of_the_slower_side(service: httpx.Client) -> None:
    shown = query(service)

    assert "2023-11-14T22:14:50Z" == shown["watermark"] == shown["left"]["watermark"]
    assert "2023-11-14T22:14:55Z" == shown["right"]["watermark"]


def test_commands_reach_the_query(service: httpx.Client, job: Job) -> None:
    assert 200 == service.get("/readyz").status_code
    assert 202 == service.put("/v1/query/pause").status_code
    job.wait_for_state("PAUSED")
    assert "PAUSED" == query(service)["state"]
    assert 503 == service.get("/readyz").status_code
    assert 409 == service.post("/v1/query/restart").status_code

    assert 202 == service.put("/v1/query/resume").status_code
    job.wait_for_state("RUNNING")
    assert 202 == service.post("/v1/query/restart").status_code
    wait_until(
        lambda: samples(service)["streamjoin_query_restarts_total"] == 1,
        START_SECONDS,
        "the restart is counted",
    )


def test_operator_explains_a_key_changes_offsets_and_resets(
    service: httpx.Client, job: Job, kafka: EmbeddedKafka
) -> None:
    """Explain a waiting key, read offsets, stop, change offsets, resume, and reset."""
    job.wait_for_state("RUNNING")
    waiting = {"k": "waits", "t": T0 + 101_000, "a": 1}
    produce(kafka.bootstrap_servers, "observed.left", [waiting])
    job.wait_for_offsets(left=len(LEFTS) + 1, right=len(RIGHTS) + 1)

    explained = looked_up(service, "/v1/query/explain?key=waits")
    [row] = explained["left"]["rows"]
    assert ("observed.left", False, "2023-11-14T22:15:01Z") == (
        row["topic"],
        row["matched"],
        row["event_time"],
    )
    assert [] == explained["right"]["rows"]
    sentences = "".join(explained["sentences"])
    assert "waits for a right row until the watermark passes 2023-11-14T" in sentences
    assert "Read observed.left, observed.right and observed.out from " in sentences
    far = looked_up(service, "/v1/query/explain?key=waits&since=2100-01-01T00:00:00Z")
    assert "waits for a right row until the watermark passes" in far["sentences"][0]
    counted = looked_up(service, "/v1/query/state")
    assert (2, 1, 1) == (
        counted["left"]["rows"],
        counted["left"]["unmatched_rows"],
        counted["right"]["rows"],
    )

    offsets = wait_until(
        lambda: all_read(service), START_SECONDS, "the brokers report that all is read"
    )
    read = {
        number: partition["read"] for number, partition in offsets["left"]["partitions"].items()
    }
    assert len(LEFTS) + 1 == sum(read.values())

    assert 409 == patched(service, left={"0": 0}).status_code
    assert 202 == service.put("/v1/query/stop").status_code
    job.wait_for_state("STOPPED")
    assert 409 == service.get("/v1/query/explain?key=waits").status_code
    assert 422 == patched(service, confirm="another", left={"0": 0}).status_code
    assert 422 == patched(service, left={"0": 10_000}).status_code
    assert 202 == patched(service, left={"0": 0}).status_code
    wait_for_reset(service, {**read, "0": 0})

    before = query(service)["run_id"]
    assert 202 == service.put("/v1/query/resume").status_code
    wait_until(lambda: read_since(service, before) == read["0"], START_SECONDS, "it is read again")

    assert 202 == service.put("/v1/query/stop").status_code
    job.wait_for_state("STOPPED")
    body = {"confirm": "observed", "start": "earliest"}
    assert 202 == service.post("/v1/query/reset", json=body).status_code
    wait_for_reset(service, "earliest")
    before = query(service)["run_id"]
    assert 202 == service.put("/v1/query/resume").status_code
    everything = len(LEFTS) + len(RIGHTS) + 2
    wait_until(lambda: read_since(service, before) == everything, START_SECONDS, "all is read")


def test_latency_is_observed_for_every_record(service: httpx.Client) -> None:
    values = samples(service)

    read = sum(values[f"streamjoin_input_records_total side={side}"] for side in ("left", "right"))
    assert read == values["streamjoin_end_to_end_latency_seconds_count"]
    assert 0 < values["streamjoin_end_to_end_latency_seconds_sum"] / read < 10 * START_SECONDS


def test_spec_is_compared_with_the_checkpoint_of_the_running_query(
    service: httpx.Client, job: Job
) -> None:
    spec = job.spec_file.read_text()
    yaml = {"content-type": "text/yaml"}

    fine = service.post("/v1/validate", content=spec, headers=yaml).json()
    assert ([], []) == (fine["problems"], fine["checkpoint_changes"])
    assert "Join observed" in fine["plan"]
    inner = spec.replace("type: left_outer", "type: inner")
    [change] = service.post("/v1/validate", content=inner, headers=yaml).json()[
        "checkpoint_changes"
    ]
    assert ("left_outer", "inner") == (change["frozen"], change["wanted"])
    wrong = service.post("/v1/validate", content="name: observed", headers=yaml).json()
    assert "left" in {problem["field"] for problem in wrong["problems"]}


def looked_up(service: httpx.Client, url: str) -> dict[str, Any]:
    answer = service.get(url)
    assert 200 == answer.status_code, answer.text
    content: dict[str, Any] = answer.json()
    return content


def all_read(service: httpx.Client) -> dict[str, Any] | None:
    """The offsets, once the brokers have been polled after all records were read."""
    offsets: dict[str, Any] = service.get("/v1/query/offsets").json()
    partitions = [*offsets["left"]["partitions"].values(), *offsets["right"]["partitions"].values()]
    latest = sum(partition["latest"] or 0 for partition in partitions)
    behind = sum(partition["behind_latest"] or 0 for partition in partitions)
    return offsets if (len(LEFTS) + len(RIGHTS) + 2, 0) == (latest, behind) else None


def patched(service: httpx.Client, confirm: str = "observed", **sides: Any) -> httpx.Response:
    return service.patch("/v1/query/offsets", json={"confirm": confirm, **sides})


def wait_for_reset(service: httpx.Client, left: Any) -> None:
    def done() -> bool:
        reset = query(service)["last_reset"]
        return reset is not None and reset["left"] == left and reset["completed_at"] is not None

    wait_until(done, START_SECONDS, "the checkpoint is reset")
    assert query(service)["last_reset"]["error"] is None


def read_since(service: httpx.Client, before: str) -> int:
    """Records read by the current run, once it is another run than `before`."""
    run_id = query(service)["run_id"]
    batches = service.get("/v1/query/progress?last=100").json()["batches"]
    own = (batch for batch in batches if batch["run_id"] == run_id)
    return 0 if run_id == before else sum(batch["input_records"] for batch in own)
