"""Random specs near valid ones: mutated as YAML text, as a document, and in single values."""

import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from tests.unit.specs import BASE

_EXAMPLE = Path(__file__).parents[3] / "join.example.yaml"

_YAML_PARTS = (
    "&a ", "*a", "*a ", "<<: *a", "!!int ", "!!bool ", "!!float ", "!!timestamp ", "!!binary ",
    "!!set ", "!own ", "? ", ": ", "- ", "---\n", "...\n", "\t", "\x00", "\ufeff", "\u202e", "'",
    '"',
    "{", "}", "[", "]", "|\n", ">\n", "#", "%", "@", "`", "~", "${X}", "${X:-", "}", "$${X}", "on",
    "off", "1e400", "0x", "1:30:00", "9" * 50, "9" * 5000, "[" * 60, "{a: " * 60, "\ud7ff", "=",
)  # fmt: skip
_SQL_PARTS = (
    "(", ")", ",", ".", "'", '"', "`", "''", "left.", "right.", "ad_id", "shown_at", "cost", "user",
    "1", "1.5BD", ". 1.5BD", "1e400", "0x", "9" * 44, "null", "true", "not ", " and ", " or ", "=",
    "<=>", "<", "+", "-", "*", "/", "%", "||", "::", "->", "[0]", "[", "]", "{", "}", "@", ":p",
    "?",
    "case when ", " then ", " else ", " end", "cast(", " as ", "bigint", "decimal(50,2)", "in (",
    "between ", "like ", "rlike '('", "interval 1 day", "interval ", "date'2026-02-30'",
    "timestamp'abc'", "select 1", "exists(", "struct(", "substring(", "abs(", "coalesce(", "x'zz'",
    "r'\\'", "/*", "*/", "--", ";", "over (", "filter (where ", "lateral ", "1" + " + 1" * 150,
    "(" * 120, "not " * 120, "- " * 120, " and true" * 120, "\\", "\x00", "\u202e", "İ",
    "\U0001d7d9",
)  # fmt: skip
_DDL_PARTS = (
    "BIGINT", "INT", "STRING", "TIMESTAMP", "DECIMAL", "DECIMAL(", "DECIMAL(10,2)", "ARRAY<",
    "MAP<",
    "STRUCT<", ">", ":", ",", "(", ")", " NOT NULL", " COMMENT 'x'", "MAP ( ", "ARRAY", "`", "a``b",
    " AS SELECT 1 --", "ARRAY<" * 200, "STRUCT<a: " * 120, "id BIGINT", ", id STRING", "İ INT",
    "CHAR(3)", "INTERVAL", "VARIANT", "DEFAULT 1", "GENERATED ALWAYS AS (1)", "'", "\x00",
    "99" * 40,
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 10**80, float("inf"), float("nan"), "", " ", "\x00", "\u202e",
    "a\nb",
    "${X}", "${UNSET}", "${X:-y}", "9" * 5000, [], {}, [[]], [None], {"a": {"b": [1]}}, ["id",
    "id"],
    "1 day", "-1 day", "106751992 days", "1" * 5000 + " days", "10 parsecs", "0 seconds",
    "0001-01-01T00:00:00+18:00", "9999-12-31T23:59:59-18:00", "earliest", "__consumer_offsets", ".",
    "/proc/x", "foo://x", "file:///x", "s3a://k:s@b/x", "abfss://c@a/x?sig=1", "host:0",
    "host:99999",
    "http://u:p@h", "avro", "left_anti", "full_outer", "dead_letter", "x" * 20_000,
)  # fmt: skip
_NAMES: tuple[str, ...] = (
    "", "password", "on", "1", "a.b", "a\nb", "\u202e", "topic", "schema", "key", "columns",
    "x" * 300,
    "filter", "window", "format", "security", "tests", "left", "condition",
)  # fmt: skip

Path_ = tuple[str | int, ...]


def valid_documents() -> list[dict[str, Any]]:
    """Specs that plan as they are; each mutation begins with one."""
    example = yaml.safe_load(_EXAMPLE.read_text())
    secured = deepcopy(BASE)
    secured["kafka"]["security"] = {
        "protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "u", "password": "${X}",
    }  # fmt: skip
    nested = deepcopy(BASE)
    nested["left"]["schema"] += (
        ", tags ARRAY<STRING>, at STRUCT<city: STRING, zip: INT>, n DECIMAL(9, 2)"
    )
    nested["left"]["filter"] = "size(tags) > 1 and at.city like 'B%' or n between 1 and 2"
    nested["join"]["condition"] = "left.cost > 1 and right.user is not null"
    nested["output"]["columns"]["t"] = "case when left.cost > 1 then left.tags[0] else 'x' end"
    dead = {**deepcopy(BASE), "dead_letter": {"topic": "dead"}, "on_late_row": "dead_letter"}
    del dead["on_bad_record"]
    outer = deepcopy(BASE)
    outer["join"] = {"type": "full_outer", "window": "10 minutes"}
    outer["left"]["idle_after"] = "1 minute"
    outer["tests"] = [{"name": "one", "left": [{"ad_id": 1}], "right": [], "output": []}]
    avro = {**deepcopy(BASE), "schema_registry": {"url": "http://localhost:8081"}}
    avro["left"] |= {"format": "avro", "subject": "impressions-value", "expected_rate": 10}
    return [deepcopy(BASE), example, secured, nested, dead, outer, avro]


def mutated_specs(seed: int, count: int) -> Iterator[str]:
    """`count` texts; the same for the same seed."""
    chance = random.Random(seed)
    documents = valid_documents()
    ways: list[Callable[[random.Random, dict[str, Any]], str]] = [
        _mutated_text, _mutated_structure, _mutated_values, _mutated_values,
    ]  # fmt: skip
    for _ in range(count):
        yield chance.choice(ways)(chance, deepcopy(chance.choice(documents)))


def _mutated_text(chance: random.Random, document: dict[str, Any]) -> str:
    text = _dumped(document)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(text) + 1)
        lines = text.splitlines(keepends=True)
        line = chance.randrange(len(lines)) if lines else 0
        match chance.randrange(5):
            case 0:
                text = text[:at] + chance.choice(_YAML_PARTS) + text[at:]
            case 1:
                text = text[:at] + text[at + chance.randint(1, 20) :]
            case 2 if lines:
                text = "".join([*lines[:line], lines[line], *lines[line:]])
            case 3 if lines:
                text = "".join([*lines[:line], " " * chance.randint(1, 4), *lines[line:]])
            case _:
                text = text.replace(": ", f": {chance.choice(_YAML_PARTS)}", 1)
    return text


def _mutated_structure(chance: random.Random, document: dict[str, Any]) -> str:
    for _ in range(chance.randint(1, 3)):
        path = chance.choice(list(_paths(document)))
        *above, last = path
        parent = _at(document, above)
        match chance.randrange(5):
            case 0:
                del parent[last]
            case 1:
                parent[last] = chance.choice(_VALUES)
            case 2:
                parent[last] = _at(document, chance.choice(list(_paths(document))))  # an alias
            case 3:
                parent[last] = chance.choice([[parent[last]], {"a": parent[last]}])
            case _ if isinstance(parent, dict):
                parent[chance.choice(_NAMES)] = parent.pop(last)
        if not document:
            break
    return _dumped(document)


def _mutated_values(chance: random.Random, document: dict[str, Any]) -> str:
    texts = [path for path in _paths(document) if isinstance(_at(document, path), str)]
    for path in chance.sample(texts, chance.randint(1, 2)):
        *above, last = path
        parent = _at(document, above)
        parts = _DDL_PARTS if last == "schema" else chance.choice((_SQL_PARTS, _VALUES))
        parent[last] = _mutated_value(chance, parent[last], parts)
    if chance.random() < 0.3:
        side = document.setdefault(chance.choice(("left", "right")), {})
        if isinstance(side, dict):
            side["filter"] = "".join(chance.choice(_SQL_PARTS) for _ in range(chance.randint(1, 8)))
    return _dumped(document)


def _mutated_value(chance: random.Random, text: str, parts: tuple[Any, ...]) -> Any:
    part = chance.choice(parts)
    if not isinstance(part, str):
        return part
    start = chance.randrange(len(text) + 1)
    end = min(len(text), start + chance.choice((0, 0, 1, 5)))
    return text[:start] + part + text[end:]


def _dumped(document: dict[str, Any]) -> str:
    return yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)


def _paths(value: Any, path: Path_ = (), depth: int = 0) -> Iterator[Path_]:
    if depth > 6:  # an alias may point to what holds it
        return
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for name, item in items:
        yield (*path, name)
        if isinstance(item, dict | list):
            yield from _paths(item, (*path, name), depth + 1)


def _at(value: Any, path: Any) -> Any:
    for part in path:
        value = value[part]
    return value
