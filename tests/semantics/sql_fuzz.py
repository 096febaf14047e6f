"""Random SQL for a spec, valid and invalid: columns of all types, all functions and operators.

Spark accepts about every third expression.
"""

import random

from tests.sql_worker import allowed_functions

COLUMNS = {
    "b": "BOOLEAN", "y": "TINYINT", "h": "SMALLINT", "i": "INT", "n": "BIGINT", "f": "FLOAT",
    "x": "DOUBLE", "p": "DECIMAL(10, 2)", "q": "DECIMAL(38, 10)", "s": "STRING", "u": "STRING",
    "z": "BINARY", "d": "DATE", "t": "TIMESTAMP", "ai": "ARRAY<INT>", "ar": "ARRAY<STRING>",
    "ast": "ARRAY<STRUCT<k: INT>>", "m": "MAP<STRING, INT>",
    "st": "STRUCT<u: INT, v: STRING, w: STRUCT<g: DOUBLE>>", "sm": "STRUCT<g: MAP<STRING, INT>>",
}  # fmt: skip
_KINDS = {
    "BOOLEAN": "b", "NUMBER": "y h i n f x p q", "INTEGER": "y h i", "STRING": "s u", "BINARY": "z",
    "DATE": "d t", "ARRAY": "ai ar ast", "MAP": "m", "STRUCT": "st sm",
}  # fmt: skip
_LITERALS = {
    "BOOLEAN": ["true", "false"],
    "NUMBER": ["0", "1", "-1", "7", "3000000000", "1.5", "1e3", "2L", "3S", "1.5BD", "1" * 20],
    "INTEGER": ["0", "1", "2", "-1"],
    "STRING": ["'a'", "''", "'12'", "'2026-01-31'", "'O''Brien'", "'a%'", "'('"],
    "BINARY": ["cast('a' as binary)"],
    "DATE": ["date'2026-01-31'", "date'2026-02-30'", "timestamp'2026-01-31 12:00'", "timestamp'x'"],
    "INTERVAL": [
        "interval 1 day", "interval 2 hours", "interval 1 year", "interval '1:30' minute to second",
        "interval 1 fortnight", "interval 500 milliseconds",
    ],
    "ARRAY": ["split('a,b', ',')"],
}  # fmt: skip
_OPERATORS = ["+", "-", "*", "/", "%", "div", "=", "<", ">=", "<>", "<=>", "and", "or", "||"]
_CASTS = [
    "boolean", "tinyint", "int", "bigint", "float", "double", "decimal(5,2)", "decimal(38,0)",
    "string", "binary", "date", "timestamp", "array<string>", "map<string, string>",
    "struct<a: bigint, b: string, c: struct<g: string>>", "interval day to second",
    "decimal(50,2)", "geography", "bigint unsigned", "json", "text", "int8", "dec(5)", "long",
    "array(int)", "varchar(5)",
]  # fmt: skip
_FORMATS = ["yyyy-MM-dd", "HH:mm", "bbbb", "YYYY", "EEE", "dd/MM/yyyy", "'at' HH", "SSS", "yyyyyyy"]
_PATTERNS = ["a+", "(", "[a-z]", "a{2,1}", "*", r"\\d", "(?<x>a)", "a|b", "[", "x++", "^a$", r"\\"]
_ARGUMENTS = {
    "STRING": "lower upper trim ltrim rtrim length concat concat_ws replace left right lpad rpad "
    "reverse startswith endswith contains instr md5 sha2 crc32 base64 hex split substring substr "
    "regexp_extract regexp_replace get_json_object",
    "DATE": "year month day dayofweek hour minute second date_trunc date_format date_add date_sub "
    "datediff to_date to_timestamp try_to_date try_to_timestamp unix_millis unix_seconds",
    "ARRAY": "size element_at try_element_at array_contains",
}
_KIND_OF = {name: kind for kind, names in _ARGUMENTS.items() for name in names.split()}
_WITH_NUMBER = """left right lpad rpad substring substr date_add date_sub sha2 element_at
try_element_at array_contains round ceil floor"""
_SECOND = dict.fromkeys(_WITH_NUMBER.split(), "INTEGER")


class SqlFuzz:
    """Generator of expressions with a seed."""

    def __init__(self, seed: int, sides: tuple[str, ...] = ("left", "right")) -> None:
        self._random = random.Random(seed)
        self._sides = sides

    def expression(self, kind: str | None = None, depth: int = 3) -> str:
        """An expression, mostly of `kind`, over columns left.name and right.name."""
        choose = self._random
        if kind is None or choose.random() < 0.12:
            kind = choose.choice([*_KINDS, "INTERVAL"])
        if depth == 0 or choose.random() < 0.3:
            return self._leaf(kind)
        makers = [self._call, self._call, self._operator, self._special]
        return choose.choice(makers)(kind, depth - 1)

    def _leaf(self, kind: str) -> str:
        choose = self._random
        literals = _LITERALS.get(kind, [])
        if choose.random() < 0.04:
            return "null"
        if literals and (kind not in _KINDS or choose.random() < 0.3):
            return choose.choice(literals)
        return f"{choose.choice(self._sides)}.{choose.choice(_KINDS[kind].split())}"

    def _operator(self, kind: str, depth: int) -> str:
        sign = self._random.choice(_OPERATORS)
        operand = {"and": "BOOLEAN", "or": "BOOLEAN", "||": "STRING"}.get(sign, kind)
        if kind == "BOOLEAN" and sign not in {"and", "or"}:
            operand = self._random.choice(["NUMBER", "STRING", "DATE", "ARRAY", "STRUCT", "MAP"])
        return f"({self.expression(operand, depth)} {sign} {self.expression(operand, depth)})"

    def _call(self, kind: str, depth: int) -> str:
        choose = self._random
        # Most of Spark's functions take arguments of few types: half of the calls are of these.
        known = choose.random() < 0.5
        name = choose.choice(sorted(_KIND_OF) if known else allowed_functions())
        count = choose.choice([1, 2, 2, 3])
        first = _KIND_OF.get(name, choose.choice(["NUMBER", kind]))
        arguments = []
        for index in range(max(count, 0)):
            wanted = first if index == 0 else _SECOND.get(name, first)
            if index == 1 and "regexp" in name and choose.random() < 0.8:
                arguments.append(f"'{choose.choice(_PATTERNS)}'")
            elif index == 1 and name in {"date_format", "to_date", "to_timestamp"}:
                arguments.append(f"'{choose.choice(_FORMATS)}'".replace("''", "'"))
            else:
                arguments.append(self.expression(wanted, depth))
        return f"{name}({', '.join(arguments)})"

    def _special(self, kind: str, depth: int) -> str:
        choose = self._random
        part = self.expression
        other = choose.choice(["NUMBER", "STRING", "DATE", kind])
        return choose.choice([
            lambda: f"cast({part(other, depth)} as {choose.choice(_CASTS)})",
            lambda: f"try_cast({part(other, depth)} as {choose.choice(_CASTS)})",
            lambda: f"(not {part('BOOLEAN', depth)})",
            lambda: f"(- {part('NUMBER', depth)})",
            lambda: f"({part(None, depth)} is not null)",
            lambda: f"({part('BOOLEAN', depth)} is true)",
            lambda: f"({part(other, depth)} between {part(other, depth)} and {part(other, depth)})",
            lambda: f"({part(other, depth)} in ({part(other, depth)}, {part(other, 0)}))",
            lambda: f"({part('STRING', depth)} like {part('STRING', 0)})",
            lambda: f"({part('STRING', depth)} rlike '{choose.choice(_PATTERNS)}')",
            lambda: f"case when {part('BOOLEAN', depth)} then {part(kind, depth)} "
            f"else {part(kind, depth)} end",
            lambda: f"case {part(other, depth)} when {part(other, 0)} then {part(kind, depth)} end",
            lambda: f"if({part('BOOLEAN', depth)}, {part(kind, depth)}, {part(kind, depth)})",
            lambda: f"({part('DATE', depth)} {choose.choice('+-')} {part('INTERVAL', 0)})",
            lambda: f"({part('DATE', depth)} - {part('DATE', depth)})",
            lambda: f"{self._leaf('ARRAY')}[{part('INTEGER', 0)}]",
            lambda: f"{self._leaf('MAP')}[{part('STRING', 0)}]",
            lambda: f"{choose.choice(self._sides)}.st.{choose.choice(['u', 'V', 'w.g', 'nope'])}",
            lambda: f"{choose.choice(self._sides)}.ast.k",
            lambda: f"named_struct('k', {part(kind, depth)})",
        ])()  # fmt: skip
