"""Sampled stacks, sorted by the part of the work they belong to. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

OTHER = "other"

# The first pattern that any frame matches; `^` matches a thread's name, which is a stack's first
# frame.
_PARTS: Sequence[tuple[str, str]] = (
    ("count of the rows in state", "StatePartitionReader"),
    ("compiling Java (JIT)", r"^\[?C[12] Compiler|CompileBroker"),
    ("garbage collection", r"^\[?GC |ParallelGC|ParallelScavenge"),
    ("write Hadoop's settings for the tasks", r"hadoop/conf/Configuration\.write"),
    ("generate the code of expressions", r"codegen/Generate\w+\$\.(generate|create)"),
    ("join: evict", "evictByTimestamp|removeOldState|evictAndReturn|streamjoin/Eviction"),
    (
        "join: probe the other side",
        r"getJoinedRows|rangeScan|streamjoin/SlotStore\.read|SlotRows\.(first|next|columns)|JoinState\.(rows?|load|slot)\b",
    ),
    (
        "join: store the row",
        r"SymmetricHashJoinStateManagerV4\.append|streamjoin/(SlotStore\.|SlotRows\.|JoinState\.)",
    ),
    (
        "join: the rest",
        "OneSideHashJoiner|StreamingSymmetricHashJoinExec|streamjoin/(StreamJoin|TableJoin)",
    ),
    ("RocksDB in the background", r"^\[?rocksdb:(low|high|bottom)"),
    ("read from Kafka", "KafkaBatchPartitionReader|KafkaDataConsumer|KafkaConsumer"),
    ("parse JSON", "JsonToStructs|JacksonParser"),
    ("write JSON", "StructsToJson|JacksonGenerator"),
    (
        "write to Kafka",
        r"KafkaDataWriter|KafkaProducer|streamjoin/Transaction|^\[?kafka-producer-network-thread",
    ),
    ("shuffle", "ShuffleMapTask|ShuffleBlockFetcher|BlockStoreShuffleReader"),
    ("plan batches", r"^\[?stream execution thread"),
)
_PATTERNS = [(name, re.compile(pattern)) for name, pattern in _PARTS]
_LIBRARY = re.compile(r".*/lib(\w+?)[0-9]*\.so$")


@dataclass(frozen=True)
class Part:
    name: str
    share: float
    """Share of all samples."""
    heaviest: Sequence[tuple[str, float]]
    """The functions on top of the stacks, and their share of all samples."""


def parts(stacks: Iterable[str], *, heaviest: int = 3) -> list[Part]:
    """Largest first. A stack is `thread;frame;…;frame count`, as async-profiler collapses them."""
    running: dict[str, Counter[str]] = {}
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        running.setdefault(_part(frames), Counter())[_short(frames[-1])] += int(count)
    total = sum(counts.total() for counts in running.values())
    sampled = [
        Part(
            name,
            counts.total() / total,
            [(frame, count / total) for frame, count in counts.most_common(heaviest)],
        )
        for name, counts in running.items()
    ]
    return sorted(sampled, key=lambda part: part.share, reverse=True)


def _part(frames: Sequence[str]) -> str:
    for name, pattern in _PATTERNS:
        if any(pattern.search(frame) for frame in frames):
            return name
    return OTHER


def _short(frame: str) -> str:
    """Without the package, and without template arguments of C++."""
    library = _LIBRARY.match(frame)
    if library:
        return f"{library[1]}, without a name"
    if "::" in frame:
        return re.sub(r"<.*>", "<>", frame)
    return frame.rpartition("/")[2]
