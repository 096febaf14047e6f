"""What checks manifests: kustomize and kubeconform, and the schemas of Kubernetes' own API."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.programs import program

PROGRAMS = {
    "kustomize": "sigs.k8s.io/kustomize/kustomize/v5@v5.7.1",
    "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0",
}
# Brings the API's own descriptions, as a server of each release answers them.
DESCRIPTIONS = "sigs.k8s.io/kubectl-validate@v0.0.4"
RELEASE = "pkg/openapiclient/builtins/1.30"
GROUPS = ("api/v1", "apis/apps/v1", "apis/networking.k8s.io/v1", "apis/policy/v1")
GO_SECONDS = 600


def installed(name: str) -> Path:
    """The program, built where it was not yet."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "streamjoin" / "bin"
    version = PROGRAMS[name].rpartition("@")[2]
    built = folder / version / name
    if not built.exists():
        _go("install", PROGRAMS[name], GOBIN=str(built.parent))
    return built


def write_schemas(folder: Path) -> None:
    """JSON Schemas where kubeconform looks: <kind>-<group>-<version>.json."""
    module = json.loads(_go("mod", "download", "-json", DESCRIPTIONS))
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
    """With it a field that the API does not know is a mistake: a server would drop it."""
    return {**schema, "additionalProperties": False} if "properties" in schema else schema


def _go(*arguments: str, **environment: str) -> str:
    go = program("go", package="golang")
    done = subprocess.run(
        [go, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=GO_SECONDS,
    )
    assert 0 == done.returncode, done.stderr[-4000:]
    return done.stdout
