"""Records of a sample, as the topic has them."""

from typing import Any, cast

from confluent_kafka import Consumer, Message

from job.proposal.record_keys import with_readable_keys
from job.proposal.sample import Sample, _newest


class Client:
    def __init__(self, message: Message) -> None:
        self.message = message

    def get_watermark_offsets(self, *_: Any) -> tuple[int, int]:
        return 0, 1

    def assign(self, _: Any) -> None:
        pass

    def poll(self, _: float) -> Message:
        return self.message


def test_record_has_its_headers_and_keeps_the_bytes_of_its_key() -> None:
    key = b"\0\0\0\0\xc87"
    fields: dict[str, Any] = {"topic": "t", "partition": 0, "offset": 0, "timestamp": (1, 5)}
    message = Message(value=b"{}", key=key, headers=[("h", b"\xc8")], **fields)

    [(record, raw)] = _newest(cast("Consumer", Client(message)), "t", 0, 1)

    assert (key, "\0\0\0\0\udcc87", (("h", "\udcc8"),)) == (raw, record.key, record.headers)
    sample, _ = with_readable_keys(Sample("t", [record], [raw]))
    assert ["7"] == [each.key for each in sample.records]
