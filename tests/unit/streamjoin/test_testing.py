"""The parts of streamjoin.testing that need no container."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from job.errors import SpecError
from job.spec.spec import spec_from_yaml
from streamjoin.testing.differences import differences
from streamjoin.testing.images import Images
from streamjoin.testing.join import _read
from streamjoin.testing.spec import CHECKPOINT, SpecAtTest
from streamjoin.testing.topics import Record, Row
from streamjoin.testing.waiting import wait_until
from tests.unit.specs import spec_yaml

SECURITY = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "u", "password": "${SECRET}"}


def at_test(
    folder: Path, environment: dict[str, str] | None = None, **changes: object
) -> SpecAtTest:
    path = folder / "join.yaml"
    path.write_text(spec_yaml(**changes))
    return SpecAtTest.of(path, "kafka:9092", environment or {})


def test_each_row_counts_as_often_as_it_is_named() -> None:
    one, two = {"n": 1}, {"n": 2}

    assert not differences([one, two, one], [two, one, one])
    assert [one] == differences([one, one], [one, two]).missing
    assert [two] == differences([one, one], [one, two]).unexpected


def test_fields_that_are_not_named_are_not_compared() -> None:
    assert not differences([{"n": 1}], [{"n": 1, "user": None}])
    assert differences([{"n": 1, "user": None}], [{"n": 1}])


def test_row_named_in_full_is_not_taken_by_one_with_fewer_fields() -> None:
    come = [{"n": 1, "user": "ada"}, {"n": 1, "user": "bob"}]

    assert not differences([{"n": 1}, {"n": 1, "user": "ada"}], come)


def test_times_may_be_named_as_such() -> None:
    come = [{"at": "2026-01-31T12:00:00.000Z"}]

    for zone in (UTC, timezone(timedelta(hours=2)), None):
        at = datetime(2026, 1, 31, 12, tzinfo=UTC).astimezone(zone or UTC)
        assert not differences([{"at": at if zone else at.replace(tzinfo=None)}], come)


def test_difference_shows_every_row_up_to_a_number() -> None:
    text = str(differences([{"n": n} for n in range(23)], [{"n": "x"}]))

    assert 'missing: {"n": 0}' in text
    assert "missing: and 3 more" in text
    assert 'unexpected: {"n": "x"}' in text


def test_brokers_login_and_checkpoint_are_the_tests_own(tmp_path: Path) -> None:
    kafka = {"bootstrap_servers": "prod:9093", "security": SECURITY}

    spec = spec_from_yaml(at_test(tmp_path, kafka=kafka).text, {})

    assert "kafka:9092" == spec.kafka.bootstrap_servers
    assert spec.kafka.security is None
    assert CHECKPOINT == spec.checkpoint


def test_variables_are_filled_once(tmp_path: Path) -> None:
    written = "campaign <> '${CAMPAIGN}' AND campaign <> '$${CAMPAIGN}' AND campaign <> '$5'"

    text = at_test(tmp_path, {"CAMPAIGN": "${x}"}, left__filter=written).text

    wanted = "campaign <> '${x}' AND campaign <> '${CAMPAIGN}' AND campaign <> '$5'"
    assert wanted == spec_from_yaml(text, {}).left.filter


def test_wrong_spec_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"left\.key"):
        at_test(tmp_path, left__key=[])


def test_format_that_needs_a_registry_is_refused(tmp_path: Path) -> None:
    registry = {"url": "http://localhost:8081"}

    with pytest.raises(SpecError, match=r"left\.format: needs a schema registry"):
        at_test(tmp_path, left__format="avro", schema_registry=registry)
    with pytest.raises(SpecError, match=r"output\.key_format: needs a schema registry"):
        at_test(
            tmp_path,
            output__key="ad_id",
            output__key_format="protobuf",
            schema_registry=registry,
        )


def test_topics_are_those_that_the_spec_names(tmp_path: Path) -> None:
    spec = at_test(tmp_path, on_bad_record=None, dead_letter={"topic": "dead"})

    assert ["impressions", "clicks", "attributed", "dead"] == spec.topics


def test_rows_follow_the_clock_only_where_a_side_may_be_idle(tmp_path: Path) -> None:
    assert not at_test(tmp_path).follows_clock
    assert at_test(tmp_path, right__idle_after="1 minute").follows_clock


def test_record_is_json_of_a_mapping_and_otherwise_what_it_is() -> None:
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)

    assert b'{"at": "2026-01-31T12:00:00.000Z"}' == Record({"at": at}).payload
    assert b"no json" == Record("no json").payload
    assert b"\xff" == Record(b"\xff").payload
    assert Record(None).payload is None
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        assert Record({"n": {1}}).payload


def test_row_has_the_positions_of_its_records() -> None:
    assert {("a.b-c", 0, 17), ("d", 2, 5)} == Row({}, "a.b-c/0/17|d/2/5").places
    assert {("d", 2, 5)} == Row({}, "|d/2/5").places
    assert set() == Row({}, "").places


def test_images_are_named_as_for_compose() -> None:
    named = Images.of({"KAFKA_IMAGE": "mirror/kafka", "JOB_IMAGE": ""})

    assert Images(kafka="mirror/kafka") == named
    assert "streamjoin-job" == named.job


def test_timeout_names_what_was_expected() -> None:
    with pytest.raises(AssertionError, match="after 0 s nobody came"):
        wait_until(lambda: None, 0, lambda: "nobody came")


def test_next_offset_is_that_of_the_topic_to_which_the_test_writes() -> None:
    """The service names the topic of a partition if the side has several."""
    assert 5 == _read({"partitions": {"0": {"read": 5}}}, "a")
    assert 5 == _read({"partitions": {"a/0": {"read": 5}, "b/0": {"read": 7}}}, "a")
    assert 0 == _read({"partitions": {"a/0": {"read": None}}}, "a")
