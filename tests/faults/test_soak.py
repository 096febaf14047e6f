"""A short soak: random faults, checked by the oracle. The long one is `make soak`."""

import sys
from pathlib import Path

import pytest

from deploy.local.kafka import EmbeddedKafka
from job.spec.engine import Engine
from job.spec.join_conditions import JoinOperator
from tests.faults.proxy import Proxy
from tests.faults.soak import report, soak

SECONDS = 40.0
SPARK, STREAMJOIN = JoinOperator


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("engine", "operator", "seed"),
    # Orders in which the first faults are of different sorts. Each engine and each operator: the
    # writer of micro-batches, and the state of the operator streamjoin, are the same in the other.
    [(Engine.MICRO_BATCH, SPARK, 38), (Engine.REAL_TIME, STREAMJOIN, 8)],
)
def test_random_faults_lose_and_repeat_nothing(
    engine: Engine,
    operator: JoinOperator,
    seed: int,
    faulty: tuple[EmbeddedKafka, Proxy],
    tmp_path: Path,
) -> None:
    kafka, proxy = faulty
    result = soak(
        *(kafka, proxy, tmp_path),
        engine=engine,
        operator=operator,
        seed=seed,
        seconds=SECONDS,
        log=print,
    )
    sys.stdout.write(report(result))
    assert len(result.fired) > 0
