"""Sentences about how far the topics were read. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from job.explain.topics import TopicRead
from job.instants import time_text


def read_sentences(reads: Sequence[TopicRead]) -> Iterator[str]:
    """One for all topics that were read to their ends, and one for each other topic."""
    complete: dict[int, list[str]] = {}
    for read in reads:
        if read.is_complete:
            complete.setdefault(read.from_ms, []).append(read.topic)
    if complete:
        yield _complete(complete)
    for read in reads:
        if read.problem is not None:
            yield f"{read.topic} cannot be read: {read.problem}."
        elif not read.is_complete:
            end = "nothing" if read.until_ms is None else f"only to {time_text(read.until_ms)}"
            start = _from([read.topic], read.from_ms)
            yield f"Read {start}, {end}: the limit of 64 MiB or 10 s was reached."


def _complete(topics: Mapping[int, Sequence[str]]) -> str:
    """`topics`: by the time from which they were read."""
    starts = [_from(names, from_ms) for from_ms, names in topics.items()]
    if len(starts) > 1:
        return f"Read to their ends: {', '.join(starts)}."
    [names] = topics.values()
    return f"Read {starts[0]} to {'its end' if len(names) == 1 else 'their ends'}."


def _from(topics: Sequence[str], from_ms: int) -> str:
    *others, last = topics
    names = f"{', '.join(others)} and {last}" if others else last
    first = "their first records" if others else "its first record"
    return f"{names} from {time_text(from_ms) if from_ms else first}"
