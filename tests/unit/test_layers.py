"""Imports go one way: errors ← spec ← plan ← dataflow ← engine ← job.__main__ (ARCHITECTURE.md)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# A module may import those of its own rank's left, never of its right.
RANKS = (
    ("errors", "durations", "settings"),
    (
        "value_schema",
        "starts",
        "reports",
        "spec_text",
        "security_spec",
        "registry_spec",
        "redaction",
    ),
    ("spec", "expressions"),
    ("tuning", "formats", "kafka_security"),
    ("plan", "progress", "answers"),
    ("planner", "fingerprint", "decoding", "state_rows", "why", "capacity", "explain_load"),
    ("dead_letters",),
    ("explain", "control", "semantics", "means"),
    (
        "value_udf",
        "dataflow",
        "preflight",
        "retention",
        "session",
        "folder",
        "cluster",
        "checkpoint",
        "listener",
        "failures",
        "delivery",
        "account",
    ),
    ("broker_watch", "lease", "state_reader", "care"),
    ("watermark", "idle"),
    ("between_batches", "resources", "engine", "desk"),
    ("__main__",),
)
RANK = {name: rank for rank, names in enumerate(RANKS) for name in names}
WITH_SPARK = {
    "state_reader",
    "value_udf",
    "dataflow",
    "delivery",
    "folder",
    "cluster",
    "checkpoint",
    "care",
    "between_batches",
    "resources",
    "engine",
    "session",
    "listener",
    "failures",
    "watermark",
}
OPEN_TO_THE_SERVICE = {
    "errors",
    "spec",
    "plan",
    "progress",
    "control",
    "settings",
    "answers",
    "reports",
    "starts",
}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part_of_job(name: str) -> str | None:
    """`job.plan.JoinPlan` → plan; None for what is not of the job."""
    parts = name.split(".")
    return parts[1] if parts[0] == "job" and len(parts) > 1 else None


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("path", modules("job"), ids=lambda path: str(path.relative_to(ROOT)))
def test_job_module_imports_only_what_stands_left_of_it(path: Path) -> None:
    own = path.relative_to(ROOT / "job").parts[0].removesuffix(".py")
    if own == "__init__":
        return
    for name in imports(path):
        other = part_of_job(name)
        if other is not None and other != own:
            assert RANK[other] < RANK[own] or _siblings(own, other), f"{own} imports {other}"


def _siblings(own: str, other: str) -> bool:
    """Within a rank the order of the names is the order of the arrows."""
    names = RANKS[RANK[own]]
    return other in names and names.index(other) < names.index(own)


@pytest.mark.parametrize("path", modules("job"), ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_parts_that_drive_spark_import_it(path: Path) -> None:
    own = path.relative_to(ROOT / "job").parts[0].removesuffix(".py")
    uses = {name.split(".")[0] for name in imports(path)}

    assert own in WITH_SPARK or not uses & {"pyspark", "py4j"}


@pytest.mark.parametrize("path", modules("service"), ids=lambda path: str(path.relative_to(ROOT)))
def test_service_knows_only_the_open_parts_of_the_job(path: Path) -> None:
    known = {part_of_job(name) for name in imports(path)} - {None}

    assert known <= OPEN_TO_THE_SERVICE


@pytest.mark.parametrize("package", ["job", "service", "streamjoin"])
def test_what_is_deployed_imports_nothing_that_serves_only_this_machine(package: str) -> None:
    for path in modules(package):
        foreign = {name.split(".")[0] for name in imports(path)} & {"deploy", "bench", "tests"}
        assert set() == foreign, path


def test_what_users_import_knows_of_the_job_only_what_a_spec_says() -> None:
    known = {part_of_job(name) for path in modules("streamjoin") for name in imports(path)} - {None}

    assert known <= {"errors", "expressions", "spec", "spec_text", "plan", "planner"}


@pytest.mark.parametrize("package", ["job", "service", "deploy", "bench", "streamjoin", "tests"])
def test_no_file_is_longer_than_a_reader_follows(package: str) -> None:
    lengths = {str(path): len(path.read_text().splitlines()) for path in modules(package)}

    assert {} == {path: length for path, length in lengths.items() if length > 400}
