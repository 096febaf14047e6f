"""The service conforms to its OpenAPI description: schemathesis tries every call."""

import json
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.polling import wait_until
from tests.unit.service.builders import broker_report
from tests.unit.service.calls import PATIENCE_SECONDS
from tests.unit.service.test_process import Processes

pytestmark = pytest.mark.processes

SCHEMATHESIS = Path(sysconfig.get_path("scripts")) / "schemathesis"
CONFIGURATION = Path(__file__).with_name("schemathesis.toml")
TOKEN = "0QXcFq6cXXuE4kqLq7bW"
EXAMPLES_OF_EACH_CALL = 15
# Refusals do not depend on the arguments.
EXAMPLES_OF_A_REFUSED_CALL = 5
SEED = 1
TEST_SECONDS = 240


@pytest.fixture
def url(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of a service with tokens, whose job answers every call or refuses lookups."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"tester control {TOKEN}\n")
    tokens.chmod(0o600)
    processes = Processes(tmp_path)
    try:
        processes.start_job(*request.param.split())
        wait_until(processes.socket.exists, PATIENCE_SECONDS, "the job is up")
        yield processes.start_service(tokens_file=tokens).url
    finally:
        processes.end_all()


@pytest.mark.parametrize(
    ("url", "examples"),
    [
        ("", EXAMPLES_OF_EACH_CALL),
        ("busy", EXAMPLES_OF_A_REFUSED_CALL),
        ("conflict", EXAMPLES_OF_A_REFUSED_CALL),
    ],
    indirect=["url"],
    ids=["answers", "is busy", "refuses"],
)
def test_every_call_conforms_to_its_description(url: str, examples: int, tmp_path: Path) -> None:
    schema = described(url)
    (tmp_path / "openapi.json").write_text(json.dumps(schema))

    done = subprocess.run(
        [
            SCHEMATHESIS, "--config-file", CONFIGURATION, "run", tmp_path / "openapi.json",
            "--url", url, "--header", f"Authorization: Bearer {TOKEN}", "--checks", "all",
            "--max-examples", str(examples), "--seed", str(SEED),
            "--continue-on-failure",
        ],
        cwd=tmp_path, capture_output=True, text=True, timeout=TEST_SECONDS, check=False,
    )  # fmt: skip

    assert 0 == done.returncode, done.stdout[-20_000:]
    calls = sum(len(operations) for operations in schema["paths"].values())
    assert f"{calls} selected / {calls} total" in done.stdout
    assert f"Tested: {calls}\n" in done.stdout


def described(url: str) -> dict[str, Any]:
    """The description of the service, with the name and the offsets of the query."""
    schema: dict[str, Any] = httpx.get(
        f"{url}/openapi.json", headers={"authorization": f"Bearer {TOKEN}"}
    ).json()
    bodies = schema["components"]["schemas"]
    for body in ("ResetRequest", "OffsetsRequest"):
        bodies[body]["properties"]["confirm"]["const"] = "ad_attribution"
    brokers = broker_report()
    for side, offsets in (("left", brokers.left), ("right", brokers.right)):
        assert offsets.earliest is not None
        assert offsets.latest is not None
        bodies["OffsetsRequest"]["properties"][side] = {
            "type": "object",
            "properties": {
                str(number): {
                    "type": "integer",
                    "minimum": first,
                    "maximum": offsets.latest[number],
                }
                for number, first in offsets.earliest.items()
            },
            "additionalProperties": False,
            "minProperties": 1,
        }
    return schema
