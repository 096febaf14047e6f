"""The job process: starts JVM, query runner and control socket, and stops on a signal.

A change of the join ends a query runner. The process then starts that of the new query, in the same
JVM if possible.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from job.change.sent_spec import PlannedSpec, PlanOf, WrittenSpec
from job.lineage.reports import RunReports
from job.logs import log_to_stderr
from job.plan.explain import explained, plan_as_json
from job.plan.jvm_options import driver_options
from job.plan.plan import JoinPlan
from job.plan.resources import available_resources
from job.redaction import Redaction
from job.settings import JobSettings
from job.spec.spec import JoinSpec
from job.sql.questions import SqlQuestions

if TYPE_CHECKING:
    from job.change.query import Successor
    from job.change.spec_file import SpecFile
    from job.control.command_log import CommandLog
    from job.spark.session import Jvm


PlanWith = Callable[[JoinSpec, SqlQuestions], JoinPlan]


def serve(
    path: Path,
    read: Callable[[Path], WrittenSpec],
    read_text: Callable[[Path], str],
    plan_with: PlanWith,
    plan_of: PlanOf,
    settings: JobSettings,
) -> bool:
    """Run the job until a signal. Returns whether the query is FAILED at the end.

    `read`: reads a spec file; `read_text`: only its text. Raises the failure of the query that a
    retry does not fix, unless the settings keep the process running. `plan_with`: as `plan_of`,
    with answers of the job's own JVM.
    """
    from job.change.spec_file import SpecFile
    from job.control.command_log import CommandLog
    from job.spark.session import Jvm

    redaction = Redaction()
    log_to_stderr(redaction, settings.log_format)
    written = read(path)
    spec = written.spec
    jvm: Jvm | None
    jvm = first = Jvm(settings, driver_options(spec.engine, spec.kafka.security), redaction)
    try:
        query = PlannedSpec(written, plan_with(spec, SqlQuestions(first.ask)))
        commands = CommandLog.of(query.plan.checkpoint)
        spec_file = SpecFile(path, read_text, query, settings, redaction)
        while True:
            jvm = jvm or Jvm(settings, query.plan.driver_options, redaction)
            spec_file.continue_with(query)
            has_failed, successor = run_query(
                *(jvm, spec_file, commands, plan_of, settings, redaction)
            )
            if successor is None:
                return has_failed
            query, jvm = successor.query, successor.jvm
    finally:
        if jvm is not None:
            jvm.close()


def run_query(
    jvm: "Jvm",
    spec_file: "SpecFile",
    commands: "CommandLog",
    plan_of: PlanOf,
    settings: JobSettings,
    redaction: Redaction,
) -> tuple[bool, "Successor | None"]:
    """Run the query until a signal or a change. Returns whether it is FAILED, and its successor."""
    # Imported here so that the JVM starts in parallel.
    from job.change.request import ChangeRequest
    from job.change.spec_process import SpecProcess
    from job.control.control_handler import ControlHandler
    from job.control.query_runner import QueryRunner
    from job.kafka.broker_watch import BrokerWatch
    from job.kafka.security import kafka_access, librdkafka_settings
    from job.kafka.topic_ids import TopicIdentity
    from job.protocol.control import control_socket
    from job.protocol.results import PlanResult
    from job.protocol.status import QueryState
    from job.query.idleness import IdleSides
    from job.query.stats import QueryStats
    from job.terminal import report_on_terminal

    query = spec_file.running
    plan = query.plan
    stats = QueryStats(plan.topics)
    resources = available_resources(settings, plan, cores=os.cpu_count() or 1)
    answer = PlanResult(
        text=explained(plan, resources),
        facts=plan_as_json(plan, resources),
        spec=query.written.spec.model_dump(mode="json", by_alias=True),
    )
    identity = TopicIdentity(plan, read=lambda: stats.offsets)
    watch = BrokerWatch(
        plan,
        settings=lambda: librdkafka_settings(kafka_access(plan.bootstrap_servers, plan.security)),
        read=lambda: stats.read_offsets,
        topics=lambda: stats.topics,
        compare_topics=identity.check,
        tails=stats.empty_tails,
    )
    idle_sides = IdleSides(plan, stats, watch)
    lineage = run_reports(plan, settings, redaction)
    specs = SpecProcess()
    change = ChangeRequest(query, plan_of, settings, redaction, specs)
    runner = QueryRunner(
        plan,
        settings,
        redaction,
        stats,
        idle_sides,
        identity,
        jvm,
        lineage,
        change,
        spec_file,
        commands,
    )
    handler = ControlHandler(runner, stats, watch, plan, answer, specs, spec_file)
    with (
        control_socket(settings.socket, handler),
        _handle_signals(runner.end),
        closing(lineage),
        closing(watch),
        closing(handler),
        closing(specs),
        report_on_terminal(plan, spec_file.path, settings, handler.status),
    ):
        watch.start()
        handler.start()
        state = runner.run()
    if runner.failure is not None:
        raise runner.failure
    # A signal has ended the job, or ends the process from here on until the next runner starts.
    return state is QueryState.FAILED, runner.successor


def run_reports(plan: JoinPlan, settings: JobSettings, redaction: Redaction) -> RunReports:
    if settings.openlineage_url is None:
        return RunReports()
    from job.lineage.http import lineage_reporter

    return lineage_reporter(plan, settings.openlineage_url, settings, redaction)


@contextmanager
def _handle_signals(end: Callable[[], None]) -> Iterator[None]:
    """Calls `end` on SIGTERM and SIGINT (Ctrl-C). Restores the previous handlers afterwards."""

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        end()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
