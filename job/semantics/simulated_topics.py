"""Topics of a side with a `topic_pattern` in a simulation: the topics of its records."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from job.plan.plan import JoinPlan
from job.semantics.json_lines import Members, any_json
from job.spec.sides import Side
from job.spec.source_topics import SourceTopics


def with_named_topics(plan: JoinPlan, lines: Mapping[Side, Sequence[str]]) -> JoinPlan:
    """The plan with the topics in `lines`, the lines of a JSONL file.

    A record without a topic is in the first topic, whose name is the pattern.
    """
    topics = {
        side: topics if topics.pattern is None else _named(topics, topics.pattern, lines[side])
        for side, topics in plan.topics.items()
    }
    return plan.with_topics(topics)


def _named(topics: SourceTopics, pattern: str, lines: Sequence[str]) -> SourceTopics:
    names = (name for line in lines for name in _topic(line) if topics.matches(name))
    return replace(topics, names=(pattern,)).with_added(list(names))


def _topic(line: str) -> Iterator[str]:
    try:
        members = any_json(line)
    except ValueError:
        return
    if isinstance(members, Members):
        yield from (value for name, value in members if name == "topic" and isinstance(value, str))
