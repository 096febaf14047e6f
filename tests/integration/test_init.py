"""`streamjoin init` on real topics: the spec that it writes runs as it is."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from deploy.local.kafka import EmbeddedKafka
from job.kafka.clients import read_to_end
from tests.integration.forks import fork_server
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.jvms import SharedJvm
from tests.terminal import session

ORDERS = 30
ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"
COMMAND = "$ .venv/bin/streamjoin init payments.yaml"
# The command runs in another folder.
PROJECT_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def topics(kafka: EmbeddedKafka) -> str:
    """Orders and payments, each payment 7 s after its order, and a value that is not JSON."""
    kafka.create_topics(
        ["shop.orders", "shop.payments", "shop.keyed", "shop.text", "shop.empty"], partitions=2
    )
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
    start = int(time.time()) - 3_600
    for n in range(ORDERS):
        at = start + n
        order = {
            "id": n,
            "ordered_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)),
            "amount": n + 0.5,
            "lines": [{"sku": f"s{n}", "count": 1}],
            "two words": None if n else "x",
        }
        payment = {"order_id": n, "ts": (at + 7) * 1000, "id": f"p{n}"}
        producer.produce("shop.orders", json.dumps(order).encode(), partition=n % 2)
        producer.produce("shop.payments", json.dumps(payment).encode(), partition=n % 2)
        producer.produce("shop.keyed", b'{"note": "x"}', key=str(n), partition=n % 2)
    producer.produce("shop.payments", b"no json", partition=0)
    producer.produce("shop.text", b"no json", partition=0)
    assert 0 == producer.flush(30)
    return kafka.bootstrap_servers


def init(file: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return fork_server().run(["init", str(file), *options], {**os.environ}, timeout=START_SECONDS)


def recorded_session() -> str:
    """The output of the session in the tutorial."""
    block = TUTORIAL.read_text().split(f"{COMMAND}\n")[1].split("```")[0]
    return without_topics(block)


def without_topics(text: str) -> str:
    """Without the lists of all topics, because other tests have theirs on the same broker, and
    without blanks at the ends of lines."""
    text = re.sub(r"^(topics|by their names .*): .*\n", "", text, flags=re.MULTILINE)
    return re.sub(r" +$", "", text, flags=re.MULTILINE)


def test_spec_of_the_dialog_runs_and_joins_the_topics(
    topics: str, kafka: EmbeddedKafka, tmp_path: Path, jvm: SharedJvm
) -> None:
    command = [sys.executable, "-m", "job", "init", "payments.yaml"]
    inputs = [topics, "shop.order", "shop.orders", "shop.payments", "", "", "", "", "", "paid"]
    inputs.append("paid.out")
    code, shown = session(command, inputs, tmp_path, PROJECT_ENVIRONMENT, START_SECONDS)
    shown = without_topics(shown.replace(topics, "localhost:9092"))
    assert (0, recorded_session()) == (code, shown)
    text = (tmp_path / "payments.yaml").read_text()
    assert "key: [id]" in text
    assert "key: [order_id]" in text
    assert "# The evidence for the key is strong: 30 shared values" in text
    assert "right - left is 7.0 s to 7.0 s" in text

    kafka.create_topics(["paid.out", "paid.out.dead"])
    spec = text.replace("./data/paid", str(tmp_path / "checkpoint"))
    with Job(spec, tmp_path, jvm) as job:
        job.wait_for(lambda status: status.totals.output_records >= ORDERS, "all results")
    client = {"bootstrap.servers": topics}
    values = [
        json.loads(message.value() or b"")
        for message in read_to_end(client, "paid.out", "test", START_SECONDS)
    ]
    assert set(range(ORDERS)) == {value["id"] for value in values}
    [first] = [value for value in values if value["id"] == 0]
    assert [{"sku": "s0", "count": 1}] == first["lines"]
    assert ("x", "p0") == (first["two words"], first["right_id"])


def test_options_replace_all_prompts_and_problems_are_named(topics: str, tmp_path: Path) -> None:
    file = tmp_path / "proposed.yaml"
    sides = ("--bootstrap-servers", topics, "--no-prompts", "--left", "shop.orders")
    for topic, problem in {
        "shop.text": "no key is proposed: no value of a column, a nested field or a record key",
        "shop.empty": "topic shop.empty has no records",
        "shop.nope": "topic shop.nope cannot be read: Broker: Unknown topic or partition",
    }.items():
        ended = init(file, *sides, "--right", topic)
        assert (1, f"{file}: {problem}") == (
            ended.returncode,
            ended.stderr[: len(f"{file}: {problem}")],
        )
    ended = init(file, *sides, "--right", "shop.payments", "--right-key", "nope")
    assert "right.key[0]: unknown column nope of the right side: it has order_id" in ended.stderr
    ended = init(file, *sides, "--right", "shop.payments", "--right-event-time", "id")
    assert "right.event_time: is STRING and must be TIMESTAMP" in ended.stderr
    ended = init(file, *sides, "--left", "shop.keyed", "--right", "shop.keyed")
    assert 1 == ended.returncode
    assert "no key is proposed: no value of a column" in ended.stderr
    ended = init(file, *sides)
    assert "Right topic: there is no proposal; set --right\n" in ended.stderr
    ended = init(file, *sides, "--right", "shop.payments", "--name", "not a name")
    assert 2 == ended.returncode
    assert "name: must begin with a letter" in ended.stderr
    assert not file.exists()

    by_record_key = tmp_path / "keyed.yaml"
    ended = init(by_record_key, *sides, "--right", "shop.keyed")
    assert 0 == ended.returncode, ended.stderr
    assert "key: [record_key]" in by_record_key.read_text()

    ended = init(file, *sides, "--right", "shop.payments", "--type", "left_anti")
    assert 0 == ended.returncode, ended.stderr
    assert "type: left_anti" in file.read_text()
    ended = init(file, *sides, "--right", "shop.payments")
    assert "exists already: name another file" in ended.stderr
