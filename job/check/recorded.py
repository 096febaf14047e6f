"""The checkpoint of a spec, compared with the spec and the topics as a start compares them."""

from collections.abc import Callable, Iterator, Mapping

from job.check.finding import Finding, info, problem, warning
from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.local import LocalCheckpoint, local_path
from job.checkpoint.reset import is_reset_pending
from job.checkpoint.successor import check_not_changed, read_replay
from job.errors import BrokerError, StreamjoinError
from job.formats.pinning import check_schema_evolution
from job.formats.registry import RegistryAccess
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.retention import check_retention, next_offsets
from job.kafka.topic_ids import TopicIdentity
from job.plan.fingerprint import check_not_frozen, incompatible_changes, with_spelling_of
from job.plan.plan import JoinPlan
from job.replay.replay import has_complete_state
from job.sql.questions import SqlQuestions

ABOUT = "checkpoint"


class RecordedQuery:
    """The query of the spec's checkpoint, if its folder is on this machine."""

    def __init__(self, plan: JoinPlan, sql: SqlQuestions, registry: RegistryAccess | None) -> None:
        self.frozen: Mapping[str, str] | None = None
        """Settings of the checkpoint. None: there are none, or they cannot be read."""
        self.findings: list[Finding] = []
        """What the checkpoint shows without the topics. If it has a problem, its topics may be
        others than those of the spec."""
        self._plan = plan
        self._checkpoint: Checkpoint | None = None
        path = local_path(plan.checkpoint)
        if path is None:
            text = f"{plan.checkpoint} is not on this machine, so the spec is not compared with it"
            self.findings.append(info(ABOUT, text))
            return
        if path.is_dir():
            self._checkpoint = checkpoint = LocalCheckpoint(path)
            if is_reset_pending(checkpoint):
                text = f"a reset of {plan.checkpoint} is not complete: the next start completes it"
                self.findings.append(warning(ABOUT, text))
                return
            self.findings += _problems(
                lambda: check_not_changed(checkpoint),
                lambda: self._compare_settings(checkpoint, sql, registry),
            )

    def _compare_settings(
        self, checkpoint: Checkpoint, sql: SqlQuestions, registry: RegistryAccess | None
    ) -> None:
        frozen = checkpoint.fingerprint
        if frozen is None:
            return
        self.frozen = frozen = with_spelling_of(self._plan, frozen, sql)
        root = checkpoint.folder.root
        check_not_frozen(root, incompatible_changes(self._plan, frozen))
        if registry is not None:
            check_schema_evolution(frozen, self._plan.readers, registry)

    def of_topics(self, plan: JoinPlan, kafka: KafkaAdmin) -> Iterator[Finding]:
        """`plan`: with the partitions of the topics. An info if nothing prevents a start."""
        checkpoint = self._checkpoint
        if checkpoint is None or self.findings:
            return
        problems = list(_problems(lambda: _compare_topics(checkpoint, plan, kafka)))
        yield from problems
        if self.frozen is not None and not problems:
            yield info(ABOUT, f"{checkpoint.folder.root} has the settings and topics of the spec")


def _compare_topics(checkpoint: Checkpoint, plan: JoinPlan, kafka: KafkaAdmin) -> None:
    """The offsets of a topic that was created again are not compared: they have no meaning."""
    replay, read = read_replay(checkpoint), checkpoint.offsets
    recorded = checkpoint.topic_ids or (replay.topic_ids if replay is not None else {})
    identity = TopicIdentity(plan, read=lambda: read)
    identity.begin(plan, kafka, recorded, create=lambda: None)
    has_state = has_complete_state(read, replay)
    if replay is not None:
        read = read or replay.starts
    unread = next_offsets(plan, read, checkpoint.start_positions)
    check_retention(plan, kafka, unread, has_state=has_state)


def _problems(*comparisons: Callable[[], None]) -> Iterator[Finding]:
    for compare in comparisons:
        try:
            compare()
        except BrokerError as error:
            yield warning(ABOUT, f"is not compared with the topics: {error}")
        except StreamjoinError as error:
            yield problem(ABOUT, str(error))
        except (OSError, ValueError, LookupError) as error:
            yield warning(ABOUT, f"cannot be read, so it is not compared: {error}")
