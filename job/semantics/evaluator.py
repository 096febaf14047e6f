"""User SQL evaluated on rows, meaning what it means in Spark under ANSI rules.

Three-valued logic, Spark's implicit casts, its errors (an overflow or a bad cast fails the query
there and raises SqlRuntimeError here). What cannot be evaluated exactly is refused by name when
the expression is compiled: NotExactError.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal

from sqlglot import exp

from job.semantics.compiled import Compiled, Env, casted, strict
from job.semantics.intervals import interval
from job.semantics.like import like
from job.semantics.sql_arithmetic import ARITHMETIC, negated
from job.semantics.sql_cast import cast, date_of, timestamp_of
from job.semantics.sql_functions import BUILDERS, BUILDERS_BY_NAME, compare
from job.semantics.sql_types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DAY_TIME,
    DOUBLE,
    INT,
    INT_RANGES,
    STRING,
    TIMESTAMP,
    VOID,
    YEAR_MONTH,
    NotExactError,
    SqlRuntimeError,
    SqlType,
    Value,
    common_type,
    decimal_type,
    parse_type,
)

Layout = Mapping[tuple[str, str], tuple[int, SqlType]]
"""Where the value of a column (side, name) stands in an Env, and its type."""


def compile_expression(tree: exp.Expr, layout: Layout) -> Compiled:
    """`tree` as a function of a row; its columns are qualified left and right."""
    return _Compiler(layout).compile(tree)


def compile_constant(tree: exp.Expr) -> Compiled:
    """`tree`, which mentions no column, to be run without a row; SqlRuntimeError if it fails."""
    return _Compiler({}, computes_constants=False).compile(tree)


def compile_predicate(tree: exp.Expr, layout: Layout) -> Callable[[Env], bool]:
    """As a filter: only true passes, null does not."""
    compiled = compile_expression(tree, layout)
    if compiled.type not in {BOOLEAN, VOID}:
        raise NotExactError(f"a condition of type {compiled.type}")
    run = compiled.run
    return lambda env: run(env) is True


class _Compiler:
    def __init__(self, layout: Layout, *, computes_constants: bool = True) -> None:
        self._layout = layout
        self._computes_constants = computes_constants
        self._by_node: dict[type[exp.Expr], Callable[[exp.Expr], Compiled]] = {
            exp.Column: self._column,
            exp.Paren: lambda node: self.compile(node.this),
            exp.Literal: _literal,
            exp.Boolean: lambda node: _constant(BOOLEAN, bool(node.this)),
            exp.Null: lambda _: _constant(VOID, None),
            exp.Interval: _interval,
            exp.Cast: self._cast,
            exp.TryCast: self._cast,
            exp.And: self._and,
            exp.Or: self._or,
            exp.Not: self._not,
            exp.Neg: self._negated,
            exp.EQ: self._comparison(lambda order: order == 0),
            exp.NEQ: self._comparison(lambda order: order != 0),
            exp.LT: self._comparison(lambda order: order < 0),
            exp.LTE: self._comparison(lambda order: order <= 0),
            exp.GT: self._comparison(lambda order: order > 0),
            exp.GTE: self._comparison(lambda order: order >= 0),
            exp.NullSafeEQ: self._null_safe_equality,
            exp.NullSafeNEQ: lambda node: self._not_of(self._null_safe_equality(node)),
            exp.Is: self._is,
            exp.Between: self._between,
            exp.In: self._in,
            exp.Like: self._like,
            exp.Case: self._case,
            exp.If: self._if,
            exp.Coalesce: lambda node: self._coalesce([node.this, *node.expressions]),
            exp.Nullif: self._nullif,
            exp.Anonymous: self._named_function,
        }

    def compile(self, node: exp.Expr) -> Compiled:
        compiled = self._compiled(node)
        self._compute_constant(node, compiled)
        return compiled

    def _compute_constant(self, node: exp.Expr, compiled: Compiled) -> None:
        trivial = isinstance(node, (exp.Literal, exp.Null))
        if self._computes_constants and not trivial and node.find(exp.Column) is None:
            _refuse_constant_failure(node, compiled)

    def _compiled(self, node: exp.Expr) -> Compiled:
        kind = type(node)
        if kind in self._by_node:
            return self._by_node[kind](node)
        if kind in ARITHMETIC:
            return ARITHMETIC[kind](self.compile(node.this), self.compile(node.expression))
        if kind in BUILDERS:
            return BUILDERS[kind](node, [self.compile(part) for part in _arguments(node)])
        raise NotExactError(_name_of(node))

    def _column(self, node: exp.Expr) -> Compiled:
        assert isinstance(node, exp.Column)
        index, kind = self._layout[node.table, node.name]
        return Compiled(kind, lambda env: env[index])

    def _named_function(self, node: exp.Expr) -> Compiled:
        build = BUILDERS_BY_NAME.get(node.name.lower())
        if build is None:
            raise NotExactError(_name_of(node))
        return build(node, [self.compile(part) for part in node.expressions])

    def _cast(self, node: exp.Expr) -> Compiled:
        target = parse_type(node.args["to"].sql(dialect="spark"))
        literal = node.this
        if type(node) is exp.Cast and isinstance(literal, exp.Literal) and literal.is_string:
            return _typed_literal(literal.name, target)
        argument = self.compile(literal)
        function = cast(argument.type, target)
        if not node.args.get("safe"):
            return strict(function, target, argument)
        return strict(lambda value: _or_null(function, value), target, argument)

    def _boolean(self, node: exp.Expr) -> Callable[[Env], bool | None]:
        compiled = self.compile(node)
        if compiled.type not in {BOOLEAN, VOID}:
            raise NotExactError(f"{compiled.type} where a condition stands")
        return compiled.run

    def _condition(self, node: exp.Expr) -> Callable[[Env], bool | None]:
        """Of CASE and IF, which take no bare NULL."""
        if self.compile(node).type == VOID:
            raise NotExactError("NULL where a condition stands")
        return self._boolean(node)

    def _and(self, node: exp.Expr) -> Compiled:
        """false wins over null; what stands right of a false is not looked at."""
        left, right = self._boolean(node.this), self._boolean(node.expression)

        def run(env: Env) -> bool | None:
            first = left(env)
            if first is False:
                return False
            second = right(env)
            return False if second is False else None if first is None else second

        return Compiled(BOOLEAN, run)

    def _or(self, node: exp.Expr) -> Compiled:
        """true wins over null; what stands right of a true is not looked at."""
        left, right = self._boolean(node.this), self._boolean(node.expression)

        def run(env: Env) -> bool | None:
            first = left(env)
            if first is True:
                return True
            second = right(env)
            return True if second is True else None if first is None else second

        return Compiled(BOOLEAN, run)

    def _not(self, node: exp.Expr) -> Compiled:
        return self._not_of(Compiled(BOOLEAN, self._boolean(node.this)))

    def _not_of(self, compiled: Compiled) -> Compiled:
        return strict(lambda value: not value, BOOLEAN, compiled)

    def _negated(self, node: exp.Expr) -> Compiled:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return _number(f"-{node.this.name}")
        return negated(self.compile(node.this))

    def _pair(self, left: exp.Expr, right: exp.Expr) -> tuple[Compiled, Compiled]:
        """Both operands, cast to the type in which they are compared."""
        first, second = self._alike([left, right], "a comparison")
        return first, second

    def _comparison(self, holds: Callable[[int], bool]) -> Callable[[exp.Expr], Compiled]:
        def build(node: exp.Expr) -> Compiled:
            left, right = self._pair(node.this, node.expression)
            return strict(lambda a, b: holds(compare(a, b)), BOOLEAN, left, right)

        return build

    def _null_safe_equality(self, node: exp.Expr) -> Compiled:
        left, right = (side.run for side in self._pair(node.this, node.expression))

        def run(env: Env) -> bool:
            a, b = left(env), right(env)
            return a is b if a is None or b is None else compare(a, b) == 0

        return Compiled(BOOLEAN, run)

    def _is(self, node: exp.Expr) -> Compiled:
        """IS NULL, IS TRUE, IS FALSE."""
        if isinstance(node.expression, exp.Null):
            run = self.compile(node.this).run
            return Compiled(BOOLEAN, lambda env: run(env) is None)
        if isinstance(node.expression, exp.Boolean):
            condition, wanted = self._boolean(node.this), bool(node.expression.this)
            return Compiled(BOOLEAN, lambda env: condition(env) is wanted)
        raise NotExactError(_name_of(node))

    def _between(self, node: exp.Expr) -> Compiled:
        value, low, high = node.this, node.args["low"], node.args["high"]
        return self._and(
            exp.And(
                this=exp.GTE(this=value.copy(), expression=low.copy()),
                expression=exp.LTE(this=value.copy(), expression=high.copy()),
            )
        )

    def _in(self, node: exp.Expr) -> Compiled:
        """True if it equals one; else null if one of them, or the value, is null."""
        value, *options = (part.run for part in self._alike([node.this, *node.expressions], "IN"))

        def run(env: Env) -> bool | None:
            sought = value(env)
            if sought is None:
                return None
            null = False
            for option in options:
                candidate = option(env)
                if candidate is None:
                    null = True
                elif compare(sought, candidate) == 0:
                    return True
            return None if null else False

        return Compiled(BOOLEAN, run)

    def _like(self, node: exp.Expr) -> Compiled:
        text, pattern = self.compile(node.this), self.compile(node.expression)
        if text.type != STRING or pattern.type != STRING:
            raise NotExactError(f"LIKE of {text.type}")
        matches = strict(like, BOOLEAN, text, pattern)
        return self._not_of(matches) if node.args.get("negate") else matches

    def _case(self, node: exp.Expr) -> Compiled:
        """Only the branch that is taken is evaluated."""
        subject = node.this
        conditions = [
            self._condition(
                exp.EQ(this=subject.copy(), expression=branch.this.copy())
                if subject is not None
                else branch.this
            )
            for branch in node.args["ifs"]
        ]
        default = node.args.get("default") or exp.Null()
        results = [branch.args["true"] for branch in node.args["ifs"]]
        *branches, otherwise = self._alike([*results, default], "CASE")

        def run(env: Env) -> Value:
            for condition, branch in zip(conditions, branches, strict=True):
                if condition(env) is True:
                    taken: Value = branch.run(env)
                    return taken
            result: Value = otherwise.run(env)
            return result

        return Compiled(otherwise.type, run)

    def _if(self, node: exp.Expr) -> Compiled:
        condition = self._condition(node.this)
        otherwise = node.args.get("false") or exp.Null()
        true, false = self._alike([node.args["true"], otherwise], "IF")
        return Compiled(true.type, lambda env: (true if condition(env) is True else false).run(env))

    def _coalesce(self, nodes: list[exp.Expr]) -> Compiled:
        parts = self._alike(nodes, "COALESCE")

        def run(env: Env) -> Value:
            for part in parts:
                value: Value = part.run(env)
                if value is not None:
                    return value
            return None

        return Compiled(parts[0].type, run)

    def _nullif(self, node: exp.Expr) -> Compiled:
        value = self.compile(node.this)
        equal = self._comparison(lambda order: order == 0)(node).run
        return Compiled(value.type, lambda env: None if equal(env) is True else value.run(env))

    def _alike(self, nodes: list[exp.Expr], what: str) -> list[Compiled]:
        """The expressions, cast to the one type in which they are compared or returned."""
        parts = [self.compile(node) for node in nodes]
        kind = parts[0].type
        for part in parts[1:]:
            kind = common_type(kind, part.type, what=what)
        alike = [casted(part, kind) for part in parts]
        for node, part in zip(nodes, alike, strict=True):
            self._compute_constant(node, part)
        return alike


def _refuse_constant_failure(node: exp.Expr, compiled: Compiled) -> None:
    """Spark computes constants while planning: one that fails, fails the query without a row."""
    text = node.sql(dialect="spark")[:60]
    try:
        value = compiled.run(())
    except SqlRuntimeError as error:
        raise NotExactError(f"{text}, which fails: {error}") from error
    if value is None and compiled.type != VOID:  # what stands around it is not evaluated, either
        raise NotExactError(f"{text}, which is always NULL")


def _constant(kind: SqlType, value: Value) -> Compiled:
    literal = value if kind.is_integral else None
    return Compiled(kind, lambda _: value, literal)


def _literal(node: exp.Expr) -> Compiled:
    return _constant(STRING, node.name) if node.args.get("is_string") else _number(node.name)


def _number(text: str) -> Compiled:
    """1 is an INT, 3000000000 a BIGINT, 1.5 a DECIMAL(2,1), 1e3 a DOUBLE."""
    if "e" in text.lower():
        return _constant(DOUBLE, float(text))
    if "." in text:
        value = Decimal(text)
        digits = value.as_tuple()
        scale = -int(digits.exponent)
        precision = max(len(digits.digits), scale)
        if precision > 38:
            raise NotExactError(f"the number {text}")
        return Compiled(decimal_type(precision, scale), lambda _: value)
    number = int(text)
    for kind in (INT, BIGINT):
        low, high = INT_RANGES[kind.name]
        if low <= number <= high:
            return _constant(kind, number)
    return Compiled(decimal_type(len(str(abs(number))), 0), lambda _: Decimal(number))


def _typed_literal(text: str, target: SqlType) -> Compiled:
    """TIMESTAMP'…' and DATE'…', and CAST('…' AS …), which is the same."""
    parse = {TIMESTAMP: timestamp_of, DATE: date_of}.get(target)
    if parse is None:
        return strict(cast(STRING, target), target, _constant(STRING, text))
    value = parse(text)
    if value is None:
        raise NotExactError(f"{target}'{text}', which is none")
    return _constant(target, value)


def _interval(node: exp.Expr) -> Compiled:
    assert isinstance(node, exp.Interval)
    try:
        length = interval(node)
    except ValueError as error:
        raise NotExactError(str(error)) from error
    if length.months:
        return Compiled(YEAR_MONTH, lambda _: length.months)
    return Compiled(DAY_TIME, lambda _: length.micros)


def _or_null(function: Callable[[Value], Value], value: Value) -> Value:
    try:
        return function(value)
    except SqlRuntimeError:
        return None


def _arguments(node: exp.Expr) -> list[exp.Expr]:
    """The operands of a function node in the order of its definition, without its keywords."""
    found: list[exp.Expr] = []
    for name in node.arg_types:
        part = node.args.get(name)
        parts = part if isinstance(part, list) else [part]
        if name not in {"unit", "zone", "decimals", "position"}:
            found += [each for each in parts if isinstance(each, exp.Expr)]
    return found


def _name_of(node: exp.Expr) -> str:
    """As the user knows it: a function by its name, anything else as written."""
    text = node.sql(dialect="spark")
    name, call, _ = text.partition("(")
    return f"{name.lower()}()" if call and name.isidentifier() else text[:60]
