"""The version in pyproject.toml is the only one; files that cannot read it repeat it."""

import re
import tomllib
from pathlib import Path

import yaml
from typer.testing import CliRunner

from job.__main__ import app
from service.version import VERSION as SERVICE_VERSION

ROOT = Path(__file__).parents[3]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_commands_and_service_print_the_version_of_the_project() -> None:
    done = CliRunner().invoke(app, ["--version"])

    assert (0, f"streamjoin {VERSION}\n") == (done.exit_code, done.output)
    assert VERSION == SERVICE_VERSION


def test_images_are_labelled_with_the_version() -> None:
    labelled = re.findall(r"^ARG VERSION=(.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)

    assert {VERSION} == set(labelled)


def test_manifests_use_the_images_of_the_version() -> None:
    kustomization = yaml.safe_load((ROOT / "deploy/k8s/kustomization.yaml").read_text())

    assert {VERSION} == {image["newTag"] for image in kustomization["images"]}


def test_chart_has_the_version() -> None:
    chart = yaml.safe_load((ROOT / "deploy/helm/Chart.yaml").read_text())

    assert {VERSION} == {chart["version"], chart["appVersion"]}


def test_lock_file_has_the_version() -> None:
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    [locked] = [package for package in packages if package["name"] == "streamjoin"]

    assert VERSION == locked["version"]
