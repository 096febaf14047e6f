"""Literals of Spark SQL."""


def quoted(value: str) -> str:
    """`value` as a literal."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
