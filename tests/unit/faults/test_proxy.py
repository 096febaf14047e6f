"""The proxy recognizes the requests of a transaction, in old and new versions."""

import struct

import pytest

from tests.faults.proxy import Api, OpenTransactions, Point, transactional_id

PRODUCER = "streamjoin-orders-1"
FLEXIBLE, FIXED = 3, 1
"""Versions of EndTxn and AddPartitionsToTxn, with and without tagged fields."""


def request(api: Api, version: int, content: bytes, producer: str = PRODUCER) -> bytes:
    head = struct.pack(">hhih", api, version, 7, 3) + b"cli"
    name = producer.encode()
    if version == FLEXIBLE:
        return head + bytes([0, len(name) + 1]) + name + content + b"\0"
    return head + struct.pack(">h", len(name)) + name + content


def add(topic: str, version: int = FLEXIBLE) -> bytes:
    return request(Api.ADD_PARTITIONS_TO_TXN, version, topic.encode())


def end(version: int = FLEXIBLE, *, commits: bool = True) -> bytes:
    return request(Api.END_TXN, version, bytes([commits]))


def caught(point: Point, *frames: bytes) -> list[bool]:
    transactions = OpenTransactions()
    return [point.is_of(frame, transactions.of(frame)) for frame in frames]


@pytest.mark.parametrize("version", [FLEXIBLE, FIXED])
def test_commit_is_caught_and_an_abort_and_another_producer_pass(version: int) -> None:
    other = request(Api.END_TXN, version, b"\1", f"{PRODUCER}0")
    frames = (end(version, commits=False), other, end(version))
    assert PRODUCER == transactional_id(end(version))
    assert [False, False, True] == caught(Point(Api.END_TXN, PRODUCER), *frames)


@pytest.mark.parametrize("version", [FLEXIBLE, FIXED])
def test_only_a_transaction_that_writes_to_the_topic_is_caught(version: int) -> None:
    results = (add("orders.out", version), add("orders.commits", version), end(version))
    marker = (add("orders.commits", version), end(version))
    commit = Point(Api.END_TXN, PRODUCER, topic="orders.out")
    assert [*[False] * 4, True, *[False] * 2] == caught(commit, *marker, *results, *marker)
    rows = Point(Api.ADD_PARTITIONS_TO_TXN, PRODUCER, topic="orders.out")
    assert [False, False, True] == caught(rows, *marker, results[0])


def test_new_producer_has_no_open_transaction() -> None:
    begin = request(Api.INIT_PRODUCER_ID, FLEXIBLE, b"")
    commit = Point(Api.END_TXN, PRODUCER, topic="orders.out")
    frames = (add("orders.out"), begin, add("orders.commits"), end())
    assert [False] * 4 == caught(commit, *frames)


def test_request_that_a_client_sends_again_to_another_broker_passes() -> None:
    commit = Point(Api.END_TXN, PRODUCER)
    assert [True] == caught(commit, end())
    commit.is_caught = True
    assert [False] == caught(commit, end())
