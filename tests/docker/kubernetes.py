"""The tools that render and check manifests (kustomize, helm, kubeconform), and the schemas of
Kubernetes' API."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.docker.stack import ROOT
from tests.programs import program

BASE = ROOT / "deploy/k8s"
CHART = ROOT / "deploy/helm"
EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))
# The spec of the base, for values without one.
SPEC = BASE / "join.yaml"
PROGRAMS = {
    "kustomize": "sigs.k8s.io/kustomize/kustomize/v5@v5.7.1",
    "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0",
}
# Contains the API's own descriptions, as a server of each release returns them.
DESCRIPTIONS = "sigs.k8s.io/kubectl-validate@v0.0.4"
RELEASE = "pkg/openapiclient/builtins/1.30"
GROUPS = ("api/v1", "apis/apps/v1", "apis/networking.k8s.io/v1", "apis/policy/v1")
GO_SECONDS = 600
HELM_SECONDS = 60
# Kinds of the Prometheus operator: not part of Kubernetes' API.
FOREIGN_KINDS = {"ServiceMonitor"}
# Cache of programs that take long to build, as in run.sh.
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "streamjoin"


def build_program(name: str) -> Path:
    """The program, built if it is missing."""
    version = PROGRAMS[name].rpartition("@")[2]
    built = CACHE / "bin" / version / name
    if not built.exists():
        go("install", PROGRAMS[name], environment={"GOBIN": str(built.parent)})
    return built


def kustomized() -> str:
    """deploy/k8s, as `kubectl apply -k` would send it."""
    command = [build_program("kustomize"), "build", BASE]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def chart(*options: str | Path, release: str = "streamjoin") -> str:
    """deploy/helm, as `helm install` with these options would send it."""
    rendered = render_chart(*options, release=release)
    assert 0 == rendered.returncode, rendered.stderr
    return rendered.stdout


def render_chart(
    *options: str | Path, release: str = "streamjoin"
) -> "subprocess.CompletedProcess[str]":
    helm = program("helm", remedy="https://helm.sh/docs/intro/install/")
    command = [helm, "template", release, CHART, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=HELM_SECONDS)


def values_of(example: Path) -> list[str | Path]:
    """The options of `helm` for an example: most examples have their spec in a file."""
    spec = [] if "spec" in yaml.safe_load(example.read_text()) else ["--set-file", f"spec={SPEC}"]
    return ["--values", example, *spec]


def conform(text: str, schemas: Path) -> "subprocess.CompletedProcess[str]":
    """Check `text` against the schemas of `write_schemas`."""
    place = f"{schemas}/{{{{ .ResourceKind }}}}{{{{ .KindSuffix }}}}.json"
    options = ["-strict", "-summary", "-skip", ",".join(FOREIGN_KINDS), "-schema-location", place]
    return subprocess.run(
        [build_program("kubeconform"), *options], input=text, capture_output=True, text=True
    )


def write_schemas(folder: Path) -> None:
    """JSON Schemas in the layout of kubeconform: <kind>-<group>-<version>.json."""
    module = json.loads(go("mod", "download", "-json", DESCRIPTIONS))
    folder.mkdir()
    for group in GROUPS:
        described = json.loads((Path(module["Dir"]) / RELEASE / f"{group}.json").read_text())
        schemas = described["components"]["schemas"]
        components = {"schemas": {name: _strict(schema) for name, schema in schemas.items()}}
        for name, schema in schemas.items():
            for kind in schema.get("x-kubernetes-group-version-kind", ()):
                of_kind = {"$ref": f"#/components/schemas/{name}", "components": components}
                (folder / _file_name(kind)).write_text(json.dumps(of_kind))


def _file_name(kind: dict[str, str]) -> str:
    group = kind["group"].split(".")[0]
    return "-".join(filter(None, [kind["kind"].lower(), group, kind["version"]])) + ".json"


def _strict(schema: dict[str, Any]) -> dict[str, Any]:
    """With it an unknown field is an error: a server would drop the field."""
    return {**schema, "additionalProperties": False} if "properties" in schema else schema


def go(
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    within: Path | None = None,
    seconds: float = GO_SECONDS,
) -> str:
    """The output of the go command; its failure is the failure of the test."""
    process = subprocess.run(
        [program("go", package="golang"), *arguments],
        env={**os.environ, **(environment or {})},
        cwd=within,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert 0 == process.returncode, process.stderr[-4000:]
    return process.stdout
