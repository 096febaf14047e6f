"""Imports go one way (ARCHITECTURE.md)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

# A room, or a module without a room, may import what is above it here, never what is below.
ROOMS: dict[str, tuple[str, ...]] = {
    "errors": (),
    "document": (),
    "java_jar": (),
    "installation": ("clone", "exit_code", "java", "folders", "jars", "compiler"),
    "settings": (),
    "redaction": (),
    "logs": (),
    "instants": (),
    "waiting": (),
    "jvm_class": (),
    "jvm_command": (),
    "sql": (
        *("literals", "time_zones", "types", "json_types", "messages", "worker", "questions"),
        "rows",
    ),
    "spec": (
        "sides",
        "source_topics",
        "durations",
        "value_schema",
        "start_positions",
        "text",
        "document",
        "variables",
        "checkpoint",
        "frozen",
        "security",
        "registry",
        "engine",
        "field_types",
        "table",
        "deduplication",
        "windows",
        "value_format",
        "csv",
        "written_types",
        "output",
        "side_spec",
        "join_conditions",
        "table_join",
        "spec",
        "expressions",
        "reference",
    ),
    "protocol": (
        *("reasons", "reports", "progress", "latency", "totals", "status", "results", "calls"),
        *("job_process", "control", "caller", "unavailable"),
    ),
    "api": (
        *("view", "freshness", "query", "offsets", "start_requests", "client", "texts", "screen"),
    ),
    "formats": (),
    "plan": (
        "tuning",
        "real_time",
        "checks",
        "position",
        "result_id",
        "jvm_options",
        "side_plan",
        "plan",
        "problems",
        "tables",
        "join_operator",
        "mirrored",
        "deduplication",
        "timestamp_sql",
        "written_numbers",
        "decimal_sql",
        "text_sql",
        "csv_sql",
        "json_sql",
        "envelope_sql",
        "value_sql",
        "key_sql",
        "record_checks",
        "record_sql",
        "result_checks",
        "result_sql",
        "capacity",
        "table_heap",
        "fingerprint",
        "keys",
        "output_planner",
        "side_columns",
        "side_filter",
        "retention",
        "planner",
        "resources",
        "explain_join",
        "explain_load",
        "explain_table",
        "explain_operator",
        "explain_real_time",
        "explain_left_out",
        "explain_deduplication",
        "explain_schemas",
        "explain_topics",
        "warnings",
        "explain_summary",
        "explain",
        "sql_problems",
        "validation",
    ),
    "event_time": (
        *(
            "partitions",
            "loading",
            "empty_tails",
            "watermark",
            "fair_reading",
            "interval",
            "history",
        ),
        "filters",
    ),
    "replay": ("cut", "replay"),
    "kafka": (
        *("msk", "security", "reset_remedy"),
        "clients",
        "kafka_admin",
        "acls",
        "topics",
        "topic_patterns",
        "topic_settings",
        "tombstones",
        "preflight",
        "retention",
        "topic_ids",
        "group_offsets",
        "tail_search",
        "topic_ends",
        "broker_watch",
    ),
    "dead_letters": (),
    "compare": ("span", "values", "results", "report", "outputs"),
    "semantics": (),
    "explain": (
        *("facts", "cause_types", "table_causes", "causes", "single_match", "sentences"),
        *("earlier", "evaluation", "simulated", "topics", "read_sentences", "explanation"),
    ),
    "proposal": (
        *("prompts", "sample", "columns", "record_keys", "envelopes", "csv_values", "values"),
        *("json_schemas", "registered", "fields", "zones", "times", "key_names", "evidence"),
        *("keys", "proposal", "side_text", "spec_text", "observed", "chosen", "dialog"),
    ),
    "spark": (
        *("executors", "state_stores", "application", "lost_hooks"),
        "hadoop_settings",
        *("sql_questions", "session", "hadoop_files", "error_origin", "failures", "listener"),
        *(
            "stopped_query",
            "stream_execution",
            "between_batches",
            "watermark",
            "observed_metrics",
            "batch_read",
        ),
        *("interval_read", "interval_duration", "live_rows"),
        *("kafka_reader", "before_first_batch", "executed_join", "join_input"),
        *("try_eval", "static_call", "kafka_partitioner", "java_classes", "in_time_zone"),
    ),
    "encoding": (),
    "join": ("live_watermark", "processor", "join"),
    "writer": (),
    "dataflow": (
        *("output_columns", "replay_sql", "replayed", "results", "written", "sides"),
        "dataflow",
    ),
    "checkpoint": (
        *(
            "documents",
            "commands",
            "folder",
            "watermark_history",
            "checkpoint",
            "reset",
            "commits",
            "filters",
            "local",
            "skipped",
            "frozen",
            "successor",
            "lease",
            "state_names",
            "join_state",
        ),
        *("state_reader", "log_check", "maintenance", "cli"),
    ),
    "delivery": (),
    "check": ("reading", "replayed", "finding", "subjects", "recorded", "sampled", "checker"),
    "verify": (
        *("comparison", "expected", "joined", "absent", "topics", "verification", "report"),
        "verify",
    ),
    "lineage": ("columns", "events", "reports", "reporter", "http"),
    "query": (
        *(
            "repeated",
            "state_rows",
            "counted",
            "stats",
            "idleness",
            "cluster",
            "runtime",
            "retries",
        ),
        "preparation",
        *("failed_run", "pacing", "driver", "query_hooks", "control_loop", "live_reports"),
        *("live_watermark", "start"),
    ),
    "change": (
        *(
            "tables",
            "comparison",
            "start_offsets",
            "plan",
            "sent_spec",
            "spec_server",
            "spec_process",
        ),
        "spec_file",
        *(
            "known_offsets",
            "files",
            "query",
            "old_query",
            "planner",
            "hand_over",
            "undo",
            "skip_gap",
            "warm_up",
            "table_reload",
        ),
        *("request_report", "request", "cli"),
    ),
    "control": (
        *("command_log", "watermark_sentences", "explain_key", "diagnosis", "lookup_queue"),
        *("transitions", "state_machine", "state_lookup", "reset"),
        *("change_control", "query_runner", "control_handler"),
    ),
    "terminal": (),
    "process": (),
    "class_archive": (),
    "commands": (
        *("program", "user", "output", "setup", "spec_file", "change", "compare", "checkpoint"),
        *(
            "dead_letters",
            "init",
            "running",
            "reset",
            "explain",
            "state",
            "watch",
            "verify",
            "topics",
        ),
        "check",
    ),
    "__main__": (),
}
RANK = {name: rank for rank, name in enumerate(ROOMS)}
WITH_SPARK = {
    "dataflow.dataflow",
    "dataflow.replayed",
    "dataflow.results",
    "dataflow.written",
    "dataflow.sides",
    "encoding.decoded_column",
    "encoding.encoded_column",
    "join",
    "writer",
    "spark",
    "checkpoint",
    "delivery",
    "query.cluster",
    "query.runtime",
    "query.preparation",
    "query.query_hooks",
    "query.live_reports",
    "query.start",
    "change.warm_up",
    "class_archive",
}
PRIVATE_SPARK = {"spark", "join", "writer", "encoding"}
# Of PySpark's objects, what is behind them in the JVM.
PRIVATE_ATTRIBUTES = {
    *("_jsq", "_jdf", "_jc", "_jsc", "_jsparkSession", "_jwrite", "_jreader", "_gateway"),
}
# The service is in an image without Spark, librdkafka and registry client, and reads no topic.
OPEN_TO_THE_SERVICE = {
    "api",
    "errors",
    "instants",
    "settings",
    "protocol",
    "plan.plan",
    "spec.join_conditions",
    "spec.sides",
    "spec.spec",
    "spec.start_positions",
}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def place(name: str) -> tuple[str, str] | None:
    """`job.plan.plan.JoinPlan` → (plan, plan); None for what is not of the job."""
    parts = [*name.split("."), ""]
    return (parts[1], parts[2]) if parts[0] == "job" and parts[1] else None


def place_of(path: Path) -> tuple[str, str]:
    module = place(".".join(("job", *path.relative_to(ROOT / "job").with_suffix("").parts)))
    assert module is not None
    return module


def is_in(place: tuple[str, str], names: set[str]) -> bool:
    return place[0] in names or ".".join(place) in names


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("path", modules("job"), ids=lambda path: str(path.relative_to(ROOT)))
def test_job_module_imports_only_what_stands_above_it(path: Path) -> None:
    room, module = place_of(path)
    if "__init__" in (room, module):
        return
    for other_room, other in filter(None, map(place, imports(path))):
        if other_room != room:
            assert RANK[other_room] < RANK[room], f"{room}.{module} imports {other_room}.{other}"
        elif (order := ROOMS[room]) and other != module:
            assert order.index(other) < order.index(module), f"{room}.{module} imports {other}"


@pytest.mark.parametrize("path", modules("job"), ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_parts_that_drive_spark_import_it(path: Path) -> None:
    uses = {name.split(".")[0] for name in imports(path)}

    assert is_in(place_of(path), WITH_SPARK) or not uses & {"pyspark", "py4j"}


@pytest.mark.parametrize("path", modules("job"), ids=lambda path: str(path.relative_to(ROOT)))
def test_private_spark_api_is_used_only_in_its_package(path: Path) -> None:
    used = {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }

    assert place_of(path)[0] in PRIVATE_SPARK or not used & PRIVATE_ATTRIBUTES


@pytest.mark.parametrize("path", modules("service"), ids=lambda path: str(path.relative_to(ROOT)))
def test_service_imports_only_the_open_parts_of_the_job(path: Path) -> None:
    for other in filter(None, map(place, imports(path))):
        assert is_in(other, OPEN_TO_THE_SERVICE), f"{path.name} imports {other}"


@pytest.mark.parametrize("package", ["job", "service", "streamjoin"])
def test_what_is_deployed_imports_nothing_that_serves_only_this_machine(package: str) -> None:
    for path in modules(package):
        foreign = {name.split(".")[0] for name in imports(path)} & {"deploy", "bench", "tests"}
        assert set() == foreign, path


def test_testing_package_imports_only_the_spec_of_the_job() -> None:
    for path in modules("streamjoin/testing"):
        for other in filter(None, map(place, imports(path))):
            assert other[0] in {"errors", "instants", "spec", "plan"}, (
                f"{path.name} imports {other}"
            )


@pytest.mark.parametrize("package", ["job", "service", "deploy", "bench", "streamjoin", "tests"])
def test_no_file_is_longer_than_a_reader_follows(package: str) -> None:
    lengths = {str(path): len(path.read_text().splitlines()) for path in modules(package)}

    assert {} == {path: length for path, length in lengths.items() if length > 400}
