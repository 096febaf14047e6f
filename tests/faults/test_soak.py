"""A short soak: random faults, checked by the oracle. The long one is `make soak`."""

import sys
from pathlib import Path

import pytest

from deploy.local.kafka import EmbeddedKafka
from tests.faults.proxy import Proxy
from tests.faults.soak import report, soak

SECONDS = 60.0
# An order in which the first faults are of different sorts.
SEED = 1


@pytest.mark.timeout(900)
def test_random_faults_lose_and_repeat_nothing(
    faulty: tuple[EmbeddedKafka, Proxy], tmp_path: Path
) -> None:
    kafka, proxy = faulty
    result = soak(kafka, proxy, tmp_path, seed=SEED, seconds=SECONDS, say=print)
    sys.stdout.write(report(result))
    assert len(result.fired) > 0
