"""deploy/cluster/docker-compose.yml, as an override of docker-compose.yml."""

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
FILES = ("docker-compose.yml", "deploy/cluster/docker-compose.yml")
BASE, CLUSTER = (yaml.safe_load((ROOT / name).read_text())["services"] for name in FILES)
WORKERS = {name: service for name, service in CLUSTER.items() if name.startswith("spark-worker")}


def volumes(service: dict[str, Any]) -> dict[str, str]:
    """Volumes by their mount point, without those of the repository."""
    pairs = (volume.split(":")[:2] for volume in service.get("volumes", ()))
    return {folder: name for name, folder in pairs if name[0] not in "./$"}


def test_driver_and_workers_have_the_checkpoint_in_common() -> None:
    folder = "/var/lib/streamjoin"
    assert 2 == len(WORKERS)
    assert "checkpoint" == volumes(BASE["job"])[folder]
    assert {"checkpoint"} == {volumes(worker)[folder] for worker in WORKERS.values()}
    assert "true" == CLUSTER["job"]["environment"]["STREAMJOIN_CHECKPOINT_IS_SHARED"]


def test_each_has_its_own_folder_for_what_is_not_shared() -> None:
    nodes = {"job": BASE["job"], **WORKERS, "spark-master": CLUSTER["spark-master"]}

    assert len(nodes) == len({volumes(node)["/scratch"] for node in nodes.values()})


def test_nodes_have_no_more_rights_than_the_job() -> None:
    for name in (*WORKERS, "spark-master"):
        for right in ("read_only", "cap_drop", "security_opt", "tmpfs", "image", "restart"):
            assert BASE["job"][right] == CLUSTER[name][right], f"{name}: {right}"


def test_job_gets_the_address_of_the_master() -> None:
    address = CLUSTER["job"]["environment"]["STREAMJOIN_SPARK_MASTER"]

    assert "spark://spark-master:7077" == address
    assert ["--host", "spark-master"] == CLUSTER["spark-master"]["command"][-2:]
    assert {address} == {worker["command"][-1] for worker in WORKERS.values()}
