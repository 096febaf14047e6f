"""The page with the functions that a spec may call: `python -m tests.functions_page` writes it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from job.sql.messages import REFUSED
from tests.sql_worker import WORKER

PAGE = Path(__file__).parents[1] / "docs" / "functions.md"
_TITLES = {
    "array_funcs": "Arrays",
    "bitwise_funcs": "Bits",
    "collection_funcs": "Collections",
    "conditional_funcs": "Conditions",
    "conversion_funcs": "Casts",
    "csv_funcs": "CSV",
    "datetime_funcs": "Dates and timestamps",
    "hash_funcs": "Hashes",
    "json_funcs": "JSON",
    "lambda_funcs": "Higher-order functions",
    "map_funcs": "Maps",
    "math_funcs": "Numbers",
    "misc_funcs": "Others",
    "predicate_funcs": "Predicates",
    "string_funcs": "Text",
    "struct_funcs": "Structs",
    "url_funcs": "URLs",
    "vector_funcs": "Vectors",
}
_INTRODUCTION = """\
# Functions

A spec may call these functions of Spark 4.3.0 in every expression.
[Spark's documentation](https://spark.apache.org/docs/4.3.0/api/sql/) describes each function.
`CASE` and `IS` are allowed, too. `streamjoin validate` refuses all other functions, and names the
reason.
"""


def page() -> str:
    allowed: Mapping[str, list[str]] = defaultdict(list)
    refused: Mapping[str, list[str]] = defaultdict(list)
    for function in WORKER.ask({"kind": "functions"})["functions"]:
        if function["refused"] is None:
            allowed[_TITLES[function["group"]]].append(function["name"])
        else:
            refused[_reason(function["refused"])].append(function["name"])
    return "\n".join(
        [
            _INTRODUCTION,
            "## Allowed functions\n",
            *_table("Group", allowed),
            "\n## Refused functions\n",
            *_table("Reason", refused),
            "",
        ]
    )


def _table(title: str, groups: Mapping[str, list[str]]) -> Iterator[str]:
    yield f"| {title} | Functions |\n|---|---|"
    for name, functions in sorted(groups.items()):
        yield f"| {name} | {' '.join(_code(each) for each in sorted(functions))} |"


def _code(name: str) -> str:
    return f"`{name}`".replace("|", "\\|")


def _reason(name: str) -> str:
    return REFUSED[name].format(what="").replace("()", "").strip(" :")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    WORKER.close()
