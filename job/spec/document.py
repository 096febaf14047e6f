"""Parses the YAML of a spec into plain values, with limits on its size. Pure.

All limits are checked on YAML's nodes, before aliases are expanded: a file of 300 bytes can expand
to 10 million values.
"""

import re
from collections.abc import Callable
from typing import Any

import yaml

from job.errors import Problem, SpecError

# A spec of 100 columns has 300 nodes; its tests may have a few thousand rows.
NODES_MAX = 100_000
DEPTH_MAX = 50
# DECIMAL(38, 0) needs 127.
_INTEGER_BITS_MAX = 256

_STANDARD_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_STANDARD_TAG}merge"
_TAGS: dict[type[yaml.Node], set[str]] = {
    yaml.ScalarNode: {f"{_STANDARD_TAG}{name}" for name in ("str", "int", "float", "bool", "null")},
    yaml.SequenceNode: {f"{_STANDARD_TAG}seq"},
    yaml.MappingNode: {f"{_STANDARD_TAG}map"},
}
_INTERPRETED = ("mapping values are not allowed", "expected ',' or ", "while parsing a flow")
"""Beginnings of PyYAML's messages about text that it takes for a mapping or a list."""
_IN_QUOTES = 'put it in quotes, e.g. "off"'
_NAME_MESSAGES = {
    f"{_STANDARD_TAG}bool": (
        "the name {name} is a boolean in YAML 1.1, as are on, off, yes, no, true and false; "
        f"{_IN_QUOTES}"
    ),
    f"{_STANDARD_TAG}int": "the name {name} is a number and must be text: put it in quotes",
    f"{_STANDARD_TAG}float": "the name {name} is a number and must be text: put it in quotes",
    f"{_STANDARD_TAG}null": "the name of a field is empty or null: write a name",
}


def parsed(text: str) -> dict[str, Any]:
    """The fields in `text`. SpecError with line and column if `text` is not a valid document."""
    try:
        document = _loaded(text)
    except yaml.MarkedYAMLError as error:
        where = _where(error.problem_mark) if error.problem_mark else "the file"
        message = f"is not YAML: {_without_values(str(error.problem))}{_remedy(text, error)}"
        raise SpecError([Problem(where, None, message)]) from error
    except (yaml.YAMLError, ValueError) as error:
        raise SpecError([Problem("the file", None, f"is not YAML: {error}")]) from error
    if not isinstance(document, dict):
        raise SpecError([Problem("the file", None, "contains no fields: begin with `name:`")])
    return document


def _loaded(text: str) -> Any:
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        _Check().node(root)
        return loader.construct_document(root)
    finally:
        loader.dispose()


class _Loader(yaml.SafeLoader):
    """Loads only plain values, nested at most DEPTH_MAX deep."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            event = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML has no types
            raise _error(event.start_mark, f"is nested more than {DEPTH_MAX} deep")
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


# YAML 1.1 parses text such as 2026-01-31 as a date; a spec needs the text.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    value: int = loader.construct_yaml_int(node)
    if value.bit_length() > _INTEGER_BITS_MAX:
        raise ValueError
    return value


def _checked(
    construct: Callable[[Any, Any], Any], expected: str
) -> Callable[[yaml.SafeLoader, yaml.Node], Any]:
    """`construct`, with a SpecError if it fails, e.g. for `!!int abc`."""

    def value(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
        try:
            return construct(loader, node)
        except (ValueError, LookupError, OverflowError) as error:
            message = f"is not {expected}: put the value in quotes if it is text"
            raise _error(node.start_mark, message) from error

    return value


for _name, _construct, _expected in (
    ("int", _number, "an integer of at most 77 digits"),
    ("float", yaml.SafeLoader.construct_yaml_float, "a number"),
    ("bool", yaml.SafeLoader.construct_yaml_bool, "true or false"),
):
    _Loader.add_constructor(f"{_STANDARD_TAG}{_name}", _checked(_construct, _expected))


class _Check:
    """Enforces the limits, in time linear in the number of written nodes."""

    def __init__(self) -> None:
        self._extents: dict[int, tuple[int, int]] = {}
        self._open: set[int] = set()

    def node(self, node: yaml.Node) -> tuple[int, int]:
        """Number of nodes and depth of `node`, aliases expanded. SpecError beyond the limits."""
        key = id(node)
        if key in self._extents:
            return self._extents[key]
        if key in self._open:
            raise _error(node.start_mark, "contains an alias to itself: write the values out")
        _check_tag(node)
        self._open.add(key)
        extents = [self.node(child) for child in _children(node)]
        self._open.remove(key)
        count = 1 + sum(nodes for nodes, _ in extents)
        depth = 1 + max((below for _, below in extents), default=0)
        if count > NODES_MAX:
            raise _error(
                node.start_mark,
                f"expands to more than {NODES_MAX:,} values: use fewer aliases (`*name`)",
            )
        if depth > DEPTH_MAX:
            raise _error(node.start_mark, f"is nested more than {DEPTH_MAX} deep")
        self._extents[key] = count, depth
        return count, depth


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        return list(node.value)
    if isinstance(node, yaml.MappingNode):
        _check_names(node)
        return [value for _, value in node.value]
    return []


def _check_tag(node: yaml.Node) -> None:
    if node.tag in _TAGS[type(node)]:
        return
    is_standard = node.tag.startswith(_STANDARD_TAG)
    # The message shows only standard tags: a password may begin with an exclamation mark.
    tag = f"!!{node.tag.removeprefix(_STANDARD_TAG)}" if is_standard else "custom"
    raise _error(
        node.start_mark,
        f"has a YAML tag ({tag}): a spec has text, numbers, booleans, null, lists and mappings; "
        "put quotes around text that begins with ! or is << or =",
    )


def _check_names(node: yaml.MappingNode) -> None:
    """Field names must be text and unique: PyYAML silently uses the last of two."""
    seen: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            message = "a list or mapping is used as the name of a field: write text"
            raise _error(key.start_mark, message)
        if key.tag in _NAME_MESSAGES:
            message = _NAME_MESSAGES[key.tag].format(name=key.value[:40])
            raise _error(key.start_mark, message)
        if key.tag != _MERGE:
            _check_tag(key)
        if key.value in seen:
            raise _error(key.start_mark, f"is not YAML: {key.value[:40]!r} is written twice")
        seen.add(key.value)


def _without_values(problem: str) -> str:
    """PyYAML's message without the name after a `*`, which may be an unquoted password."""
    if problem.startswith("found undefined alias"):
        return "an alias has no anchor; put quotes around text that begins with *"
    if problem.startswith("found undefined tag handle"):
        return "a tag has no handle; put quotes around text that begins with !"
    return problem


def _remedy(text: str, error: yaml.MarkedYAMLError) -> str:
    """For text with a colon or a bracket that YAML interprets, such as `STRUCT<a: INT>`."""
    mark = error.problem_mark
    if mark is None or not str(error.problem).startswith(_INTERPRETED):
        return ""
    line = text.splitlines()[mark.line]
    before = line[: mark.column]
    if "${" in line:
        return '; within { } put quotes around a variable, e.g. {password: "${PW}"}'
    names = re.findall(r"(?:^|[\s{,-])(\w+):\s", before)
    field = f" of `{names[-1]}`" if names else ""
    return f'; put the text{field} in quotes, e.g. "s STRUCT<a: INT>"'


def _error(mark: yaml.Mark, message: str) -> SpecError:
    return SpecError([Problem(_where(mark), None, message)])


def _where(mark: yaml.Mark) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"
