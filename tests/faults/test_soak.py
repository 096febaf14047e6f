"""A short soak: random faults, checked by the oracle. The long one is `make soak`."""

import sys
from pathlib import Path

import pytest

from deploy.local.kafka import EmbeddedKafka
from job.spec.engine import Engine
from tests.faults.proxy import Proxy
from tests.faults.soak import report, soak

SECONDS = 40.0
# Orders in which the first faults are of different sorts.
SEEDS = {Engine.MICRO_BATCH: 38, Engine.REAL_TIME: 8}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", list(Engine))
def test_random_faults_lose_and_repeat_nothing(
    engine: Engine, faulty: tuple[EmbeddedKafka, Proxy], tmp_path: Path
) -> None:
    kafka, proxy = faulty
    result = soak(
        kafka, proxy, tmp_path, engine=engine, seed=SEEDS[engine], seconds=SECONDS, log=print
    )
    sys.stdout.write(report(result))
    assert len(result.fired) > 0
