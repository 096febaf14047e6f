"""What must be true of a query's topics before Spark reads them."""

from job.checkpoint.checkpoint import Checkpoint
from job.delivery.commit_topic import create_commit_topic_if_used
from job.kafka.retention import check_retention
from job.kafka.security import KafkaAccess
from job.kafka.topic_ids import TopicIdentity
from job.plan.plan import JoinPlan


def check_topics_of(
    checkpoint: Checkpoint, plan: JoinPlan, access: KafkaAccess, identity: TopicIdentity
) -> None:
    """Refuse topics that are not those of the checkpoint, or that lack records it has not read.

    Records the ids of topics that the checkpoint does not know, and creates the commit topic. A
    topic that is created again between this and Spark's first read is noticed by the broker watch,
    which compares with the same ids. Raises RetentionError, CheckpointError, TopicError or
    BrokerError.
    """
    recorded = checkpoint.topic_ids
    ids = identity.begin(access, recorded, lambda: create_commit_topic_if_used(plan, access))
    if ids != recorded:
        checkpoint.topic_ids = ids
    check_retention(plan, access, checkpoint.offsets)
