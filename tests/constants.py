"""Expressions with a constant that fails, by the rule of Spark that decides whether it is computed.

tests/unit/sql/test_constants.py: `validate` accepts the hidden ones and refuses the others.
tests/semantics/test_spec_differential.py: Spark too.
"""

HIDDEN = {
    "an operation with NULL is NULL": [
        "null + cast('q' as int)", "cast('q' as int) + null", "left.i + null + cast('q' as int)",
        "case 1/0 when null then 1 end", "null between 1/0 and left.i", "right(null, 'a')",
        "isnan(null + 1/0)", "null in (1/0, left.i)",
    ],
    "an argument before it is NULL, or decides": [
        "nanvl(null, 'a')", "nanvl(1.0, cast('a' as double))", "date_trunc(null, 'x')",
        "date_trunc('foo', cast('a' as timestamp))", "try_divide(1, 0) + cast('q' as int)",
        "2 in (2, 1/0)", "1 between 2 and 1/0", "false and 1/0 = 1",
        "1 / if(date_trunc('Y', timestamp'2026-01-31 12:00') is null, 1, 0)",
        "trim(cast(1/0 as string), null)", "power(cast(null as double), 1/0)",
    ],
    "IS NULL of an expression that is never NULL": [
        "(2147483647 + 1) is null", "hash(left.i, 1/0) is not null",
        "named_struct('k', 1/0) is null",
    ],
    "it is in a branch": [
        "coalesce(left.i, 1/0)", "if(true, 1/0, left.i)", "case when left.b then 1/0 end",
        "if(1/0 = 1, 1, left.i)", "nullif(1/0, left.i)", "right(left.s, 'a')",
        "if(left.b, left.i + 1 + 2147483647, 2)",
        "(left.b = true) and if(left.b or true, 1/0 = 1, false)",
        "if(left.b, round(left.x, 'a'), 1)",
        "nullif(left.i, nullif(left.i + cast('q' as int), 1))",
    ],
    "the operation moves into a branch before": [
        "if(left.b, 1, 2) + 1 + 2147483647", "1 / case when left.b then 0 when true then 0 end",
        "if(left.b <=> left.b, 1/0, left.i) + 1", "try_add(if(left.b, 1, 2), 1) + 1 + 2147483647",
        "if(left.b, named_struct('k', 1), named_struct('k', 2)).k + 1 + 2147483647",
    ],
    "a function that returns NULL where the operator fails": ["try_add('q', 1)"],
}  # fmt: skip

COMPUTED = {
    "a part without a column": [
        "greatest(left.i, 1/0)", "concat(null, left.s, cast(1/0 as string))",
        "(cast('q' as int)) is null", "(null <=> left.i + 1/0)", "left.b and (1/0 = 1) and false",
        "cast(cast('x' as timestamp) as date)", "left.t > lower('X')", "1/0 = 1 and false",
        "cast('q' as int) + try_divide(1, 0)", "concat(null, cast('q' as int))",
    ],
    "the operand of NULLIF and BETWEEN, which is used twice": [
        "nullif(left.i + 1/0, left.i)", "1/0 between left.i and left.i",
    ],
    "an argument that decides the type": [
        "round(left.p, 'a')", "regexp_replace(null, left.s, left.s, 'a%')", "round(null, 1/0)",
        "regexp_replace(left.s, 'a', 'b', 0)",
    ],
    "the constants of a sum or a product": [
        "left.i + 1 + 2147483647", "2147483647 + left.i + 1", "left.i * 2147483647 * 2",
        "left.i + 1 + (left.i + 2147483647)", "(-if(left.b, 1, 2)) + 1 + 2147483647",
    ],
    "a part that becomes a constant": [
        "1 / if(left.b, 0, 0)", "1 / coalesce(0, left.i)",
        "1 / case when true then 0 else left.i end", "struct('q', left.i).col1 + 1",
    ],
}  # fmt: skip

FILTERS = [
    "left.i = 0 and 1 / left.i > 1", "left.b or (left.i = 0 and 1 / left.i > 1)",
    "left.s = 'a' and left.s + 1 = 2", "left.i = 0 and right.i = left.i and 1 / right.i > 1",
    "left.i = 0 and array_contains(left.ai, 1 div left.i)", "left.y = 0 and 1 / left.y > 1",
    "left.b and (false and 1/0 = 1)", "(left.i = 0) = true and 1 / left.i > 1",
    "left.i in (0) and 1 / left.i > 1",
]  # fmt: skip
"""Filters in which Spark replaces a column by its constant, or moves the terms of AND."""
FILTERS_HIDDEN = [
    "left.i = 0 and (1 / left.i) is null", "not (left.i = 0 and 1 / left.i > 1)",
    "left.i = 0 and if(left.b, 1 / left.i > 1, false)",
    "left.i = 0 and right.b and left.b = (right.n = 1 div left.i)",
]  # fmt: skip
