"""`streamjoin.testing`, used like its users do: their spec, in their own containers."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from job.errors import SetupError
from streamjoin.testing import Broker, Images, Record, RunningJoin
from tests.docker.stack import ROOT

GUIDE = (ROOT / "docs/simulation.md").read_text()
HOUR = timedelta(hours=1)
# Each test has its own day, later than that of the previous test: event time never goes back.
DAYS = count()


@pytest.fixture(scope="module")
def join(broker: Broker) -> Iterator[RunningJoin]:
    with broker.start(ROOT / "join.example.yaml") as started:
        yield started


@pytest.fixture
def noon() -> datetime:
    return datetime(2026, 1, 1, 12, tzinfo=UTC) + timedelta(days=next(DAYS))


def shown(ad_id: int, at: datetime) -> dict[str, Any]:
    return {"ad_id": ad_id, "shown_at": at, "campaign": "spring", "cost": 0.5}


def clicked(ad_id: int, at: datetime) -> dict[str, Any]:
    return {"ad_id": ad_id, "clicked_at": at, "user": "ada"}


def test_rows_are_emitted_joined_or_once_they_expire(join: RunningJoin, noon: datetime) -> None:
    join.left(shown(1, noon), shown(2, noon), shown(2, noon))
    join.right(clicked(1, noon + HOUR))
    join.expect({"ad_id": 1, "user": "ada", "clicked_at": noon + HOUR})

    join.advance_watermark(noon + HOUR)
    join.expect()
    join.advance_watermark(noon + HOUR + timedelta(milliseconds=1))
    join.expect({"ad_id": 2, "user": None}, {"ad_id": 2, "user": None})


def test_what_is_missing_and_what_is_too_much_is_shown(join: RunningJoin, noon: datetime) -> None:
    join.left(shown(1, noon), shown(1, noon))
    join.right(clicked(1, noon), "no JSON")

    with pytest.raises(AssertionError) as wrong:
        join.expect({"ad_id": 1, "user": "ada"}, {"ad_id": 3})

    assert 'missing: {"ad_id": 3}' in str(wrong.value)
    assert 1 == str(wrong.value).count('unexpected: {"ad_id": 1, "campaign": "spring"')
    assert "bad {'malformed_json': 1}" in str(wrong.value)


def test_rows_of_another_transaction_count_once_it_is_committed(
    broker: Broker, join: RunningJoin
) -> None:
    producer = Producer({"bootstrap.servers": broker.servers, "transactional.id": "another"})
    producer.init_transactions()
    for ended in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce("attributed", b'{"ad_id": 7}')
        producer.flush()
        ended()

    join.expect({"ad_id": 7})


def test_row_held_in_state_outlives_a_crash_and_matches_once(
    join: RunningJoin, noon: datetime
) -> None:
    join.left(shown(1, noon))
    join.right(clicked(1, noon))
    join.expect({"ad_id": 1})

    join.crash()
    join.right(clicked(1, noon + HOUR))

    join.expect({"ad_id": 1, "clicked_at": noon + HOUR})


def test_service_answers_and_executes_commands(join: RunningJoin, noon: datetime) -> None:
    assert 202 == join.http.put("/v1/query/pause").status_code
    join.left(shown(1, noon))
    with pytest.raises(AssertionError, match="not all records are read"):
        join.expect(timeout=1)
    assert 202 == join.http.put("/v1/query/resume").status_code

    join.right(clicked(1, noon))
    join.expect({"ad_id": 1})


def test_watermark_that_cannot_advance_is_reported(join: RunningJoin, noon: datetime) -> None:
    with pytest.raises(AssertionError, match="fields of a readable row"):
        join.advance_watermark(noon, right={"ad_id": "seven"})


def test_image_that_cannot_be_had_is_named() -> None:
    images = Images(kafka="localhost:1/nobody/kafka")

    with pytest.raises(SetupError, match=r"localhost:1/nobody/kafka.*KAFKA_IMAGE"), Broker(images):
        pass


def test_topics_that_are_made_again_are_empty(broker: Broker) -> None:
    lengths = []
    for _ in range(3):
        broker.topics.create(["again"])
        lengths.append(broker.topics.end("again"))
        broker.topics.send("again", [(Record("x"), datetime.now(UTC))])
        lengths.append(broker.topics.end("again"))
        broker.topics.delete(["again"])

    assert [0, 1] * 3 == lengths


def test_second_join_deletes_what_it_created(broker: Broker, tmp_path: Path) -> None:
    spec = (ROOT / "join.example.yaml").read_text()
    for name in ("ad_attribution", "impressions", "clicks", "attributed"):
        spec = re.sub(rf"\b{name}\b", f"{name}_second", spec)
    (tmp_path / "join.yaml").write_text(spec)
    with broker.start(tmp_path / "join.yaml") as second:
        at = datetime(2026, 1, 1, tzinfo=UTC)
        second.left(shown(1, at))
        second.right(Record(clicked(1, at), key="1", headers={"a": "b"}))
        second.expect({"ad_id": 1, "user": "ada"})
        during = broker.topics.names()

    topics = {f"{name}_second" for name in ("impressions", "clicks", "attributed")}
    topics.add("ad_attribution_second.commits")
    assert topics == {name for name in during if "_second" in name}
    assert topics.isdisjoint(broker.topics.names())


@pytest.mark.usefixtures("built")
def test_example_of_the_readme_passes(tmp_path: Path) -> None:
    files = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", GUIDE, re.DOTALL))
    assert {"conftest.py", "test_join.py"} == set(files)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "join.yaml").write_text((ROOT / "join.example.yaml").read_text())

    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error"],
        cwd=tmp_path,
        env={**os.environ, "DOCKER_REQUIRED": "yes"},
        capture_output=True,
        text=True,
    )

    assert 0 == process.returncode, process.stdout
    assert " 1 passed" in process.stdout
