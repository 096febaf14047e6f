"""Exactly-once delivery on the driver: the identity of a query in the commit topic, and the
fingerprint of a batch.
"""

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from confluent_kafka import KafkaException

from job.checkpoint.checkpoint import Checkpoint
from job.delivery import producers
from job.delivery.delivered import Fence
from job.delivery.markers import encoded_fence, fence_key
from job.delivery.ownership import check_owners, ensure_ownership
from job.delivery.slots import Target, dead_letter_slot, slot_of
from job.kafka.clients import produce
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.security import librdkafka_settings
from job.plan import tuning
from job.plan.plan import JoinPlan
from job.replay.replay import Replay

_THREADS = 8


def delivery_target(plan: JoinPlan, kafka: KafkaAdmin, checkpoint: Checkpoint) -> Target:
    return Target(
        admin=kafka.client,
        client=tuple(librdkafka_settings(kafka.access).items()),
        name=plan.name,
        query_id=checkpoint.query_id,
        commit_topic=plan.output.commit_topic,
        transaction_timeout_seconds=tuning.TRANSACTION_TIMEOUT_SECONDS,
    )


def claim_name(
    plan: JoinPlan,
    target: Target,
    checkpoint: Checkpoint,
    replay: Replay | None,
    *,
    since: int,
    new_query: bool,
) -> None:
    """Make the query the only one that delivers under its name. Raises the errors of
    `ensure_ownership`.

    `replay`: the replay after a change. If the change has taken the name over, the old query must
    not have delivered anything after the cut. Otherwise the old query delivers at least once, and
    its markers may be outdated. None: the query replaces no other query.
    """
    has_owned_name = checkpoint.has_owned_name
    ensure_ownership(
        *(target, checkpoint, dead_letter_slot(plan)),
        since=since,
        new_query=new_query,
        last_batches=replay.last_batches if replay is not None and has_owned_name else None,
    )


def check_ownership(plan: JoinPlan, kafka: KafkaAdmin, checkpoint: Checkpoint) -> None:
    """Raises CheckpointError if another query owns the name of the query. Changes nothing."""
    target = delivery_target(plan, kafka, checkpoint)
    check_owners(target, checkpoint, dead_letter_slot(plan))


def take_name_over(
    plan: JoinPlan, target: Target, checkpoint: Checkpoint, last_batches: Mapping[str, int]
) -> None:
    """As `claim_name`, during a change or its undo. The replaced queries must not have delivered
    anything after `last_batches`."""
    ensure_ownership(
        *(target, checkpoint, dead_letter_slot(plan)),
        since=0,
        new_query=False,
        last_batches=last_batches,
    )


def fence_slots(plan: JoinPlan, target: Target, number: int) -> None:
    """Fence the producers of all state partitions. Their transactions are then committed or
    aborted, and runs with a smaller fence number no longer write."""
    fence = partial(_fence, target, Fence(target.query_id, number))
    with ThreadPoolExecutor(_THREADS, "fencing") as threads:
        list(threads.map(fence, range(plan.state_partitions)))


def _fence(target: Target, fence: Fence, partition: int) -> None:
    """As `fence_slot` in tests/unit/delivery/interval_protocol.py."""
    slot, topic = slot_of(partition), target.commit_topic
    settings = target.producer_settings(slot)
    try:
        producer = producers.init_producer(settings, topic)
        producer.begin_transaction()
        key = fence_key(target.name, slot.name)
        produce(producer, topic, encoded_fence(fence), key, partition)
        producer.commit_transaction(producers.COMMIT_SECONDS)
    except KafkaException as error:
        identity = settings["transactional.id"]
        what = f"the producers of the previous run, {identity}, could not be fenced"
        raise producers.delivery_error(what, error) from error


def input_fingerprint(checkpoint: Checkpoint, batch_id: int) -> str:
    """Fingerprint of the input of a planned batch: offsets, watermark and time of the batch.

    Spark writes them to the offset log before the batch begins, and reads them from there when
    the batch runs again.
    """
    text = checkpoint.planned_batch(batch_id)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
