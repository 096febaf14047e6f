"""deploy/k8s: the output of kustomize is valid for the API, and fits the images."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from job.plan.planner import join_plan
from job.spec.spec import spec_from_yaml
from tests.docker.kubernetes import SPEC, conform, kustomized
from tests.sql_worker import SQL


@pytest.fixture(scope="module")
def rendered() -> str:
    return kustomized()


def pod(rendered: str) -> dict[str, Any]:
    documents = {document["kind"]: document for document in yaml.safe_load_all(rendered)}
    return dict(documents["Deployment"]["spec"]["template"]["spec"])


def test_kubernetes_takes_every_manifest(rendered: str, schemas: Path) -> None:
    checked = conform(rendered, schemas)

    assert 0 == checked.returncode, checked.stdout
    assert "6 resources found" in checked.stdout
    assert "Invalid: 0, Errors: 0, Skipped: 0" in checked.stdout


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("terminationGracePeriodSeconds", "terminationGraceSeconds"),
        ("replicas: 1", "replicas: one"),
        ("path: /readyz", "paths: /readyz"),
    ],
)
def test_check_finds_a_mistake(rendered: str, schemas: Path, right: str, wrong: str) -> None:
    assert right in rendered
    assert 0 != conform(rendered.replace(right, wrong), schemas).returncode


def test_spec_of_the_manifests_can_be_planned() -> None:
    spec = spec_from_yaml(SPEC.read_text(), {"KAFKA_BOOTSTRAP_SERVERS": "kafka:1"})

    plan = join_plan(spec, SQL, state_partitions=4)

    assert plan.checkpoint.startswith("/var/lib/streamjoin/")


def test_containers_have_no_rights_and_a_read_only_root(rendered: str) -> None:
    assert 10001 == pod(rendered)["securityContext"]["runAsUser"]
    for container in pod(rendered)["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_each_folder_that_the_images_write_to_is_a_volume(rendered: str) -> None:
    written = {
        container["name"]: {
            mount["mountPath"]
            for mount in container["volumeMounts"]
            if not mount.get("readOnly", False)
        }
        for container in pod(rendered)["containers"]
    }

    assert {"/var/lib/streamjoin", "/scratch", "/run/streamjoin", "/tmp"} == written["job"]
    assert {"/tmp"} == written["service"]


def test_only_one_pod_at_a_time_uses_the_checkpoint(rendered: str) -> None:
    documents = {document["kind"]: document for document in yaml.safe_load_all(rendered)}
    deployment = documents["Deployment"]["spec"]

    assert (1, "Recreate") == (deployment["replicas"], deployment["strategy"]["type"])
