"""Compares the metrics of a PromQL expression with those that the service exposes."""

from collections.abc import Iterator

import promql_parser
from promql_parser import MatchOp

from job.protocol.reasons import REASONS
from job.protocol.status import QueryState
from job.protocol.totals import TRANSACTION_RESULTS
from tests.unit.service.metrics.scrape import DEFINITIONS

# Labels that Prometheus itself adds to each series of a scrape.
OF_THE_SCRAPE = {"instance", "job"}
SIDES = {"left", "right", "output"}
# The values of a label with a fixed set of values.
VALUES = {
    "state": {state.value for state in QueryState},
    "side": SIDES,
    "reason": set(REASONS),
    "result": set(TRANSACTION_RESULTS),
}


def series() -> dict[str, set[str]]:
    """Labels per name of a series: a histogram has three."""
    found = {}
    for metric in DEFINITIONS:
        name, own = metric.name, set(metric.labels)
        if metric.kind == "histogram":
            found |= {f"{name}_bucket": own, f"{name}_sum": own - {"le"}}
            found[f"{name}_count"] = own - {"le"}
        else:
            found[name] = own
    return found


def counters() -> set[str]:
    return {name for name in series() if name.endswith(("_total", "_bucket", "_sum", "_count"))}


def mistakes(expression: str) -> Iterator[str]:
    """Metrics, labels and values in the expression that the service does not expose."""
    known = series()
    for selector, is_range in _selectors(expression):
        name = selector.name or "a selector without a name"
        if name not in known:
            yield f"{name} is not exposed"
            continue
        if name in counters() and not is_range:
            yield f"{name} is a counter: without rate() or increase() it has no meaning"
        for matcher in selector.matchers.matchers:
            if matcher.name not in known[name] | OF_THE_SCRAPE:
                yield f"{name} has no label {matcher.name}"
            yield from _wrong_values(matcher)
    named = set().union(*_grouped_by(expression))
    present = set().union(OF_THE_SCRAPE, *known.values())
    yield from (f"there is no label {label}" for label in named - present)


def names(expression: str) -> set[str]:
    return {selector.name for selector, _ in _selectors(expression) if selector.name}


def _wrong_values(matcher: promql_parser.Matcher) -> Iterator[str]:
    if matcher.name not in VALUES or matcher.op not in (MatchOp.Equal, MatchOp.Re):
        return
    for value in matcher.value.split("|"):
        if value not in VALUES[matcher.name]:
            yield f"{matcher.name} is never {value}"


def _selectors(expression: str) -> list[tuple[promql_parser.VectorSelector, bool]]:
    """Each selector, and whether it is a range selector."""
    selectors = []
    ranges = []

    def visit(node: promql_parser.Expr) -> bool:
        if isinstance(node, promql_parser.MatrixSelector):
            ranges.append(node)  # its selector is visited next
        elif isinstance(node, promql_parser.VectorSelector):
            selectors.append((node, bool(ranges)))
            ranges.clear()
        return True

    promql_parser.walk(promql_parser.parse(expression), pre_visit=visit)
    return selectors


def _grouped_by(expression: str) -> list[set[str]]:
    labels = []

    def visit(node: promql_parser.Expr) -> bool:
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            labels.append(set(node.modifier.labels))
        return True

    promql_parser.walk(promql_parser.parse(expression), pre_visit=visit)
    return labels
