"""deploy/k8s and deploy/helm on a real API server: warnings, and admission of the pod."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path

import pytest
import yaml

from tests.docker.kubernetes import EXAMPLES, FOREIGN_KINDS, chart, kustomized, values_of
from tests.kubernetes.api_server import ApiServer, Document
from tests.kubernetes.build import BUILD_SECONDS, build_api_server

# If the server is not built yet, the first test builds it.
pytestmark = pytest.mark.timeout(2 * BUILD_SECONDS)
# Kubernetes' strictest pod security standard.
RESTRICTED = {
    f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")
}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with ApiServer(build_api_server(), tmp_path_factory.mktemp("api-server")) as started:
        yield started


@pytest.fixture(scope="session")
def manifests() -> dict[str, Document]:
    return by_kind(kustomized())


@pytest.fixture(params=[None, *EXAMPLES], ids=lambda path: path.stem if path else "kustomize")
def rendered(request: pytest.FixtureRequest) -> dict[str, Document]:
    """The manifests of kustomize, or of the chart with the values of an example."""
    example: Path | None = request.param
    return by_kind(chart(*values_of(example)) if example else kustomized())


def by_kind(text: str) -> dict[str, Document]:
    documents = {document["kind"]: document for document in yaml.safe_load_all(text)}
    return {kind: document for kind, document in documents.items() if kind not in FOREIGN_KINDS}


@pytest.fixture
def namespace(server: ApiServer, tmp_path: Path) -> str:
    """A namespace that admits only restricted pods, with the account that a controller would
    create."""
    name = tmp_path.name.replace("_", "-")
    metadata = {"name": name, "labels": RESTRICTED}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}).raise_for_status()
    server.apply(account, name).raise_for_status()
    return name


def pod_of(deployment: Document) -> Document:
    """The pod that a controller would create."""
    template = deepcopy(deployment["spec"]["template"])
    metadata = {**template["metadata"], "name": "streamjoin"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def test_server_takes_every_manifest_without_a_warning(
    server: ApiServer, rendered: dict[str, Document], namespace: str
) -> None:
    assert {"ConfigMap", "Deployment", "Service"} <= rendered.keys()
    for kind, document in rendered.items():
        answer = server.apply(document, namespace)

        assert 201 == answer.status_code, answer.text
        assert [] == answer.headers.get_list("warning"), kind


def test_applied_again_they_change_nothing(
    server: ApiServer, rendered: dict[str, Document], namespace: str
) -> None:
    for kind, document in rendered.items():
        first, second = (server.apply(document, namespace).json() for _ in range(2))
        for answered in (first, second):
            # A new volume claim is written once more, with the same content.
            del answered["metadata"]["resourceVersion"]

        assert first == second, kind


def test_pod_is_admitted_where_only_restricted_ones_are(
    server: ApiServer, rendered: dict[str, Document], namespace: str
) -> None:
    pod = pod_of(rendered["Deployment"])
    create_named_by(pod, server, namespace)

    answer = server.apply(pod, namespace)

    assert 201 == answer.status_code, answer.text
    assert [] == answer.headers.get_list("warning")
    assert names(pod["spec"]["volumes"]) == names(answer.json()["spec"]["volumes"])


def create_named_by(pod: Document, server: ApiServer, namespace: str) -> None:
    """The account and the priority class of the pod, which admission looks up."""
    if account := pod["spec"].get("serviceAccountName"):
        metadata = {"metadata": {"name": account}}
        answer = server.apply({"apiVersion": "v1", "kind": "ServiceAccount", **metadata}, namespace)
        answer.raise_for_status()
    if priority := pod["spec"].get("priorityClassName"):
        named = {"metadata": {"name": priority}, "value": 1000}
        group = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        server.apply({**group, **named}).raise_for_status()


def names(objects: list[Document]) -> list[str]:
    return [named["name"] for named in objects]


def unknown_field(deployment: Document) -> None:
    deployment["spec"]["template"]["spec"]["terminationGraceSeconds"] = 1


def unknown_volume(deployment: Document) -> None:
    del deployment["spec"]["template"]["spec"]["volumes"][0]


def unselected_pods(deployment: Document) -> None:
    deployment["spec"]["selector"]["matchLabels"] = {"app.kubernetes.io/name": "other"}


def unknown_port(deployment: Document) -> None:
    service = deployment["spec"]["template"]["spec"]["containers"][1]
    service["readinessProbe"]["httpGet"]["port"] = "a-name-that-is-too-long"


@pytest.mark.parametrize(
    ("mistake", "reason"),
    [
        (unknown_field, "field not declared in schema"),
        (unknown_volume, 'volumeMounts[0].name: Not found: "spec"'),
        (unselected_pods, "`selector` does not match template `labels`"),
        (unknown_port, "readinessProbe.httpGet.port: Invalid value"),
    ],
)
def test_server_refuses_a_mistake(
    server: ApiServer,
    manifests: dict[str, Document],
    namespace: str,
    mistake: Callable[[Document], None],
    reason: str,
) -> None:
    deployment = deepcopy(manifests["Deployment"])
    mistake(deployment)

    answer = server.apply(deployment, namespace)

    assert answer.is_error
    assert reason in answer.json()["message"]


def as_root(pod: Document) -> None:
    pod["spec"]["securityContext"]["runAsUser"] = 0


def privileged(pod: Document) -> None:
    pod["spec"]["containers"][0]["securityContext"] = {"privileged": True}


def with_capabilities(pod: Document) -> None:
    del pod["spec"]["containers"][1]["securityContext"]["capabilities"]


def without_seccomp(pod: Document) -> None:
    del pod["spec"]["securityContext"]["seccompProfile"]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (as_root, "runAsUser=0"),
        (privileged, "privileged"),
        (with_capabilities, "unrestricted capabilities"),
        (without_seccomp, "seccompProfile"),
    ],
)
def test_pod_that_may_do_more_is_not_admitted(
    server: ApiServer,
    manifests: dict[str, Document],
    namespace: str,
    more: Callable[[Document], None],
    reason: str,
) -> None:
    pod = pod_of(manifests["Deployment"])
    more(pod)

    answer = server.apply(pod, namespace)

    assert 403 == answer.status_code, answer.text
    assert 'violates PodSecurity "restricted:latest"' in answer.json()["message"]
    assert reason in answer.json()["message"]


def test_server_warns_of_a_deployment_whose_pods_it_will_not_admit(
    server: ApiServer, manifests: dict[str, Document], namespace: str
) -> None:
    deployment = deepcopy(manifests["Deployment"])
    privileged(deployment["spec"]["template"])

    answer = server.apply(deployment, namespace)

    assert 201 == answer.status_code, answer.text
    [warning] = answer.headers.get_list("warning")
    assert "would violate PodSecurity" in warning
