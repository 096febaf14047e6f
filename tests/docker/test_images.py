"""The content of the images, and what they must not contain."""

import json
import re
import tomllib

import pytest

from tests.docker.stack import ROOT, Stack

IMAGES = ("job", "service")
# Packages that only the job needs.
HEAVY = {"pyspark", "confluent-kafka", "openlineage-python", "requests"}


@pytest.mark.parametrize("name", IMAGES)
def test_image_runs_as_a_user_without_rights(built: Stack, name: str) -> None:
    assert "uid=10001(streamjoin) gid=10001(streamjoin)" in built.in_image(name, "id")
    assert "10001:10001" == built.image(name)["Config"]["User"]


@pytest.mark.parametrize("name", IMAGES)
def test_image_holds_no_tool_that_builds_or_installs_python(built: Stack, name: str) -> None:
    tools = "cc gcc make javac pip pip3 uv go git curl"

    assert "" == built.in_image(name, "sh", "-c", f"command -v {tools} || true")


def test_service_image_holds_neither_java_nor_what_only_the_job_needs(built: Stack) -> None:
    assert "" == built.in_image("service", "sh", "-c", "command -v java || true")
    assert set() == HEAVY & set(installed(built, "service"))
    assert set() == HEAVY - set(installed(built, "job"))


@pytest.mark.parametrize("name", IMAGES)
def test_image_holds_one_package_of_the_project(built: Stack, name: str) -> None:
    names = ("deploy", "bench", "job", "service", "streamjoin")
    code = f"from importlib.util import find_spec; print(*filter(find_spec, {names}))"

    assert "streamjoin" == built.in_image(name, "python", "-c", code).strip()


def test_jars_of_the_job_image_are_the_pinned_ones(built: Stack) -> None:
    pins = tomllib.loads((ROOT / "jars.toml").read_text())["spark"]

    sums = built.in_image("job", "sh", "-c", "sha256sum $STREAMJOIN_JARS/*.jar")

    assert sorted(pins.values()) == sorted(line.split()[0] for line in sums.splitlines())


@pytest.mark.parametrize("name", IMAGES)
def test_python_packages_are_the_locked_ones(built: Stack, name: str) -> None:
    lock = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    locked = {(package["name"], package["version"]) for package in lock}

    versions = installed(built, name)

    assert "streamjoin" in versions
    assert set() == set(versions.items()) - locked


@pytest.mark.parametrize("name", IMAGES)
def test_list_of_parts_names_every_python_package(built: Stack, name: str) -> None:
    parts = json.loads(built.in_image(name, "cat", "/usr/share/streamjoin/sbom.cdx.json"))

    assert "CycloneDX" == parts["bomFormat"]
    named = {normal(part["name"]): part["version"] for part in parts["components"]}
    assert installed(built, name) == named


@pytest.mark.parametrize("name", IMAGES)
def test_image_has_labels_that_describe_it(built: Stack, name: str) -> None:
    labels = built.image(name)["Config"]["Labels"]

    assert f"Streamjoin {name}" == labels["org.opencontainers.image.title"]
    assert labels["org.opencontainers.image.version"]
    assert labels["org.opencontainers.image.revision"]


@pytest.mark.parametrize("name", IMAGES)
def test_image_holds_no_secret(built: Stack, name: str) -> None:
    """Secrets arrive as files when a container starts; files of the build folder stay out of the
    image."""
    names = "tokens *_password *_token .env *.key *.jks *.p12 id_rsa* .netrc .pypirc"
    question = " -o ".join(f"-name '{it}'" for it in names.split())
    places = "/etc/streamjoin /opt/streamjoin /run /var/lib/streamjoin /usr/share/streamjoin"
    # The secrets that Compose mounts in /run/secrets, here too.
    search = f"find {places} -path /run/secrets -prune -o \\( {question} \\) -print"

    files = built.in_image(name, "sh", "-c", f"{search} 2>/dev/null || true")

    assert "" == files
    variables = {it.split("=")[0] for it in built.image(name)["Config"]["Env"]}
    assert set() == {it for it in variables if re.search("PASS|SECRET|TOKEN|CREDENTIAL", it)}


def test_images_are_built_by_the_uv_that_set_up_uses() -> None:
    named = {
        re.findall(r"UV_VERSION=(\S+)", (ROOT / file).read_text())[0]
        for file in ("Dockerfile", "deploy/local/setup.sh")
    }

    assert 1 == len(named)


def installed(built: Stack, name: str) -> dict[str, str]:
    """The version of each Python package in an image."""
    code = """
from importlib.metadata import distributions
for found in distributions():
    print(found.name, found.version)
"""
    lines = built.in_image(name, "python", "-c", code).splitlines()
    return {normal(package): version for package, version in map(str.split, lines)}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
