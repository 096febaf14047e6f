"""deploy/helm: with default values it renders deploy/k8s, and its output is valid for the API."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from job.plan.planner import join_plan
from job.spec.spec import spec_from_yaml
from tests.docker.kubernetes import (
    CHART,
    EXAMPLES,
    SPEC,
    chart,
    conform,
    kustomized,
    render_chart,
    values_of,
)
from tests.sql_worker import SQL

WITH_SPEC = ("--set-file", f"spec={SPEC}")
# What Helm's own conventions add to the objects of the base.
HELM_KEYS = {
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
    "helm.sh/resource-policy",
    "checksum/spec",
}
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
Objects = dict[str, dict[str, Any]]


def by_kind(rendered: str) -> Objects:
    return {document["kind"]: document for document in yaml.safe_load_all(rendered)}


def without_helm_keys(node: Any) -> Any:
    """`node` without the keys of Helm, and without maps that become empty by that."""
    if isinstance(node, list):
        return [without_helm_keys(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: value for key, value in node.items() if key not in HELM_KEYS}
    return {
        key: without_helm_keys(value)
        for key, value in kept.items()
        if not (isinstance(value, dict) and value and value.keys() <= HELM_KEYS)
    }


def test_default_values_render_the_kustomize_base() -> None:
    # kustomize appends a hash of the content to the name of the ConfigMap.
    base = re.sub(r"streamjoin-spec-[a-z0-9]{10}\b", "streamjoin-spec", kustomized())

    assert by_kind(base) == without_helm_keys(by_kind(chart(*WITH_SPEC)))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_kubernetes_takes_the_chart_with_the_values_of_an_example(
    example: Path, schemas: Path
) -> None:
    checked = conform(chart(*values_of(example)), schemas)

    assert 0 == checked.returncode, checked.stdout
    assert "Invalid: 0, Errors: 0" in checked.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_spec_of_an_example_can_be_planned(example: Path) -> None:
    rendered = by_kind(chart(*values_of(example)))

    text = rendered["ConfigMap"]["data"]["join.yaml"]
    join_plan(spec_from_yaml(text, {"KAFKA_BOOTSTRAP_SERVERS": "kafka:1"}), SQL, state_partitions=4)


def test_every_value_of_the_examples_reaches_an_object() -> None:
    """A value that no template reads would be accepted and ignored."""
    for example in EXAMPLES:
        rendered = chart(*values_of(example))
        for value in set(texts(yaml.safe_load(example.read_text()))):
            assert value in rendered, example.name


def texts(node: Any) -> list[str]:
    """The strings of a document, except a spec of several lines."""
    if isinstance(node, dict):
        return [text for value in node.values() for text in texts(value)]
    if isinstance(node, list):
        return [text for value in node for text in texts(value)]
    return [node] if isinstance(node, str) and "\n" not in node else []


def test_templates_read_every_value() -> None:
    templates = "".join(path.read_text() for path in (CHART / "templates").iterdir())

    for path in leaves(SCHEMA, VALUES):
        # A template may pass a whole map on, such as an image.
        read = [rf"\.Values\.{re.escape('.'.join(path[:end]))}(?![.\w])" for end in (-1, len(path))]
        assert any(re.search(pattern, templates) for pattern in read), path


def test_schema_and_values_name_the_same_values() -> None:
    assert [] == named_once(SCHEMA, {"global": {}, **VALUES})


def children(node: dict[str, Any]) -> dict[str, Any]:
    """The properties of a node of the schema, or of the definition to which it refers."""
    if "$ref" in node:
        node = SCHEMA["definitions"][node["$ref"].rpartition("/")[2]]
    return dict(node.get("properties", {}))


def leaves(node: dict[str, Any], values: dict[str, Any]) -> list[tuple[str, ...]]:
    """The paths of all values; a map without properties in the schema is one value."""
    return [
        (name, *rest)
        for name, value in values.items()
        for rest in (
            leaves(children(node)[name], value) if children(children(node)[name]) else [()]
        )
    ]


def named_once(node: dict[str, Any], values: dict[str, Any], place: str = "") -> list[str]:
    """The values that only the schema or only values.yaml names."""
    properties = children(node)
    found = [f"{place}{name}" for name in properties.keys() ^ values.keys()]
    for name in properties.keys() & values.keys():
        if children(properties[name]):
            found += named_once(properties[name], values[name], f"{place}{name}.")
    return found


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ((), "spec is required"),
        (("--set", "spec=a: [b"), "spec: is not valid YAML"),
        (("--set", "spec=name: a"), "`checkpoint` is required"),
        (("--set", "spec=checkpoint: /tmp/a"), '"/tmp/a" is not on the volume'),
        ((*WITH_SPEC, "--set", "persistence.enabled=false"), "is on no volume"),
        ((*WITH_SPEC, "--set", "service.prot=1"), "prot"),
        ((*WITH_SPEC, "--set", "job.statePartitions=0"), "statePartitions"),
        ((*WITH_SPEC, "--set", "job.driverMemory=2Gi"), "driverMemory"),
        ((*WITH_SPEC, "--set-json", "networkPolicy.ingressFrom=[]"), "ingressFrom"),
    ],
)
def test_wrong_value_is_refused(options: tuple[str, ...], reason: str) -> None:
    refused = render_chart(*options)

    assert 0 != refused.returncode
    assert reason in refused.stderr


def test_checkpoint_may_come_from_a_variable_or_be_on_a_store() -> None:
    chart("--set", "spec=checkpoint: ${CHECKPOINT}")
    chart("--set", "spec=checkpoint: hdfs://name/a", "--set", "persistence.enabled=false")


def test_changed_spec_restarts_the_pod() -> None:
    one, other = (
        by_kind(chart("--set", f"spec=checkpoint: s3a://bucket/{name}"))["Deployment"]
        for name in ("a", "b")
    )

    assert one["spec"]["template"] != other["spec"]["template"]
    assert one["spec"]["selector"] == other["spec"]["selector"]


def test_two_releases_in_one_namespace_share_nothing() -> None:
    one, other = (by_kind(chart(*WITH_SPEC, release=name)) for name in ("ads", "orders"))

    for kind in one:
        assert one[kind]["metadata"]["name"] != other[kind]["metadata"]["name"]
    pods = other["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for selector in selectors(one):
        assert not selector.items() <= pods.items()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_selectors_of_a_release_select_its_pod_in_every_version(example: Path) -> None:
    objects = by_kind(chart(*values_of(example), release="ads"))
    stable = {"app.kubernetes.io/name": "streamjoin", "app.kubernetes.io/instance": "ads"}

    pod = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert stable.items() <= pod.items()
    assert all(stable == selector for selector in selectors(objects))


def test_pod_mounts_the_spec_and_the_volume_of_its_release() -> None:
    objects = by_kind(chart(*WITH_SPEC, release="ads"))
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}

    spec, claim = objects["ConfigMap"], objects["PersistentVolumeClaim"]
    assert spec["metadata"]["name"] == volumes["spec"]["configMap"]["name"]
    mounted = volumes["checkpoint"]["persistentVolumeClaim"]["claimName"]
    assert claim["metadata"]["name"] == mounted


def selectors(objects: Objects) -> list[dict[str, str]]:
    found = [objects["Service"]["spec"]["selector"]]
    found.append(objects["Deployment"]["spec"]["selector"]["matchLabels"])
    if "NetworkPolicy" in objects:
        found.append(objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"])
    if "PodDisruptionBudget" in objects:
        found.append(objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"])
    return found


def test_service_monitor_selects_the_service_and_its_port() -> None:
    objects = by_kind(chart(*values_of(CHART / "examples/prometheus.yaml")))
    service, monitor = objects["Service"], objects["ServiceMonitor"]["spec"]

    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    [endpoint], [port] = monitor["endpoints"], service["spec"]["ports"]
    assert (port["name"], "https", "/metrics") == (
        endpoint["port"],
        endpoint["scheme"],
        endpoint["path"],
    )


def test_uninstall_keeps_the_checkpoint() -> None:
    claim = by_kind(chart(*WITH_SPEC))["PersistentVolumeClaim"]

    assert "keep" == claim["metadata"]["annotations"]["helm.sh/resource-policy"]
