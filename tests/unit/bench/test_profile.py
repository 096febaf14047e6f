"""Stacks are sorted by the part of the work that they belong to."""

import pytest

from bench.profile.parts import OTHER, parts

JOIN = "org/apache/spark/sql/execution/streaming/operators/stateful/join"
HADOOP = "org/apache/hadoop/conf"
CODEGEN = "org/apache/spark/sql/catalyst/expressions/codegen"
TASK = "[Executor task launch worker for task 1.0 in stage 2.0 (TID 3) tid=77]"


@pytest.mark.parametrize(
    ("stack", "part"),
    [
        (f"{TASK};{JOIN}/X$OneSideHashJoiner.go;{JOIN}/Y.getJoinedRows;a", "join: probe"),
        (f"{TASK};{JOIN}/X$OneSideHashJoiner.go;{JOIN}/Y.evictByTimestamp;a", "join: evict"),
        (f"{TASK};{JOIN}/SymmetricHashJoinStateManagerV4.append;rocksdb::DB::Merge", "join: store"),
        (f"{TASK};{JOIN}/X$OneSideHashJoiner.go;b", "join: the rest"),
        (f"{TASK};streamjoin/SlotStore.append;rocksdb::DB::Merge", "join: store"),
        (f"{TASK};org/apache/spark/sql/catalyst/json/JacksonParser.parse", "parse JSON"),
        ("[C2 CompilerThread0 tid=9];CompileBroker::compiler_thread_loop", "compiling"),
        ("[rocksdb:high tid=9];start_thread;rocksdb::DBImpl::BGWorkFlush", "RocksDB in the backg"),
        ("[stream execution thread for x tid=9];Optimizer.execute", "plan batches"),
        (f"[stream execution thread];{JOIN}/X.<init>;{HADOOP}/Configuration.write", "write Hadoop"),
        (f"{TASK};{CODEGEN}/GenerateUnsafeProjection$.generate;a", "generate the code"),
        (f"{TASK};java/lang/Thread.run", OTHER),
    ],
)
def test_stack_belongs_to_the_nearest_part(stack: str, part: str) -> None:
    (measured,) = parts([f"{stack} 4"])

    assert measured.name.startswith(part)
    assert 1.0 == measured.share


def test_shares_are_of_all_samples_and_the_largest_comes_first() -> None:
    sampled = parts(
        [
            f"{TASK};a/b/JacksonParser.parse;a/b/Buffer.<init> 2",
            f"{TASK};a/b/JacksonParser.parse;/tmp/librocksdbjni123.so 1",
            f"{TASK};{JOIN}/Y.evictByTimestamp;bool rocksdb::Skip<rocksdb::Key const&>::Insert 7",
        ],
        heaviest=1,
    )

    assert [("join: evict", 0.7), ("parse JSON", 0.3)] == [(p.name, p.share) for p in sampled]
    assert [("bool rocksdb::Skip<>::Insert", 0.7)] == sampled[0].heaviest
    assert [("Buffer.<init>", 0.2)] == sampled[1].heaviest
