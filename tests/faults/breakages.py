"""The faults that a soak chooses from: each breaks one thing, proves that it did, and heals it.

A fault raises if it has not happened. When it returns, the job is running or about to run.
"""

import random
import signal
import time
from collections.abc import Callable, Mapping

import psutil
from confluent_kafka.admin import NewPartitions

from job.spec.engine import Engine
from tests.faults.harness import Harness
from tests.faults.proxy import Api, Point, Proxy
from tests.integration.jobs import START_SECONDS, STATE_PARTITIONS
from tests.polling import wait_until
from tests.processes import has_ended, is_stopped

PARTITIONS_MAX = 6
# Of the driver, in a micro-batch.
FAILPOINTS = ("after_offset_log", "after_all_commits", "after_commit_log")
# Requests of a transaction, and whether the broker has answered them.
POINTS = tuple(
    (api, is_answered)
    for api in (Api.ADD_PARTITIONS_TO_TXN, Api.PRODUCE, Api.END_TXN)
    for is_answered in (False, True)
)


class Breaker:
    """The faults of one harness. `rng` chooses their length and place, so a seed determines all."""

    def __init__(self, harness: Harness, proxy: Proxy, rng: random.Random) -> None:
        self.harness = harness
        self.proxy = proxy
        self.rng = rng
        self._successors = 0

    # The job's processes

    def kill_the_process_tree(self) -> str:
        count = self.harness.job.kill_tree()
        assert -signal.SIGKILL == self.harness.job.process.returncode
        self.harness.job.start()
        return f"{count} processes killed"

    def kill_at_a_failpoint(self) -> str:
        job, point = self.harness.job, self.rng.choice(FAILPOINTS)
        job.arm("kill", point)
        self.harness.feed(20)
        job.wait_for_failpoint()
        job.process.wait(START_SECONDS)
        assert -signal.SIGKILL == job.process.returncode
        job.start()
        return f"killed {point}"

    def kill_in_a_transaction(self) -> str:
        """The requests that the proxy holds reach the broker as soon as the job has ended."""
        job, (api, is_answered) = self.harness.job, self.rng.choice(POINTS)
        slot = self.rng.randrange(STATE_PARTITIONS)
        point = Point(api, f"streamjoin-{self.harness.name}-{slot}", is_answered=is_answered)
        self.proxy.catch(point)
        try:
            self.harness.feed(20)
            self.proxy.wait_until_caught(point)
            if is_dead := self.rng.random() < 0.5:
                job.kill_tree()
            else:
                job.jvm.kill()
        finally:
            self.proxy.release()
        if is_dead:
            job.start()
        which = "after" if is_answered else "before"
        return f"{'all' if is_dead else 'JVM'} killed {which} {api.name} of slot {slot}"

    def kill_the_driver_s_python(self) -> str:
        jvm = self.harness.job.jvm
        self.harness.job.kill()
        wait_until(lambda: has_ended(jvm), START_SECONDS, "the orphaned JVM has ended")
        self.harness.job.start()
        return f"JVM {jvm.pid} ended with its driver"

    def kill_the_jvm(self) -> str:
        jvm = self.harness.job.jvm
        jvm.kill()
        wait_until(lambda: has_ended(jvm), START_SECONDS, "the JVM has ended")
        return f"JVM {jvm.pid} killed"

    def terminate(self) -> str:
        assert 0 == self.harness.job.terminate()
        self.harness.job.start()
        return "ended with 0"

    def freeze(self) -> str:
        seconds = self.rng.uniform(1, 6)
        self.harness.job.freeze()
        try:
            frozen = psutil.Process(self.harness.job.process.pid)
            # The signal is sent at once; the process stops when it next leaves the kernel.
            wait_until(lambda: is_stopped(frozen), START_SECONDS, "it is stopped")
            self._feed_for(seconds)
        finally:
            self.harness.job.thaw()
        return f"stopped for {seconds:.1f} s"

    def freeze_and_start_a_second_one(self) -> str:
        harness, zombie = self.harness, self.harness.job
        zombie.freeze()
        self._successors += 1
        successor = harness.new_job(harness.folder / f"successor{self._successors}")
        try:
            successor.start()
            harness.job = successor
            harness.recovered(time.monotonic())
        finally:
            zombie.thaw()
        assert 1 == zombie.process.wait(START_SECONDS)
        return "the stopped job ended with 1"

    # The broker

    def kill_the_broker(self) -> str:
        before = self.harness.kafka.pid
        self.harness.kafka.kill()
        self.harness.kafka.start()
        return f"process {before} killed, {self.harness.kafka.pid} started"

    def bounce_the_broker(self) -> str:
        before = self.harness.kafka.pid
        self.harness.kafka.stop()
        self.harness.kafka.start()
        return f"process {before} stopped, {self.harness.kafka.pid} started"

    def pause_the_broker(self) -> str:
        seconds, broker = self.rng.uniform(1, 12), self.harness.broker_process()
        broker.send_signal(signal.SIGSTOP)
        try:
            deadline = time.monotonic() + seconds
            wait_until(lambda: time.monotonic() > deadline, START_SECONDS, "the pause is over")
            assert psutil.STATUS_STOPPED == broker.status()
        finally:
            broker.send_signal(signal.SIGCONT)
        return f"stopped for {seconds:.1f} s"

    # The network between job and broker

    def cut_the_network(self) -> str:
        counts, before = self.proxy.counts, self.proxy.counts.cut
        self.proxy.cut()
        try:
            self._feed_for(self.rng.uniform(1, 8))
        finally:
            self.proxy.heal()
        assert counts.cut > before
        return f"{counts.cut - before} connections cut"

    def slow_the_network(self) -> str:
        before = self.proxy.counts.delayed
        self.proxy.slow(self.rng.uniform(0.01, 0.1))
        try:
            self._feed_for(self.rng.uniform(2, 6))
        finally:
            self.proxy.heal()
        assert self.proxy.counts.delayed > before
        return f"{self.proxy.counts.delayed - before} answers delayed"

    def hold_answers(self) -> str:
        before = self.proxy.counts.held
        self.proxy.hold_replies()
        try:
            self._feed_for(self.rng.uniform(1, 8))
        finally:
            self.proxy.heal()
        assert self.proxy.counts.held > before
        return f"{self.proxy.counts.held - before} answers held"

    def lose_the_answer_to_a_commit(self) -> str:
        close = self.rng.random() < 0.5
        before = self.proxy.counts.replies_swallowed
        self.proxy.swallow_reply_of_commit(close=close)
        self.harness.feed(20)
        wait_until(
            lambda: self.proxy.counts.replies_swallowed > before, START_SECONDS, "it is lost"
        )
        return "the answer, and the connection" if close else "the answer"

    def lose_a_commit(self) -> str:
        before = self.proxy.counts.commits_swallowed
        self.proxy.swallow_commit()
        self.harness.feed(20)
        wait_until(
            lambda: self.proxy.counts.commits_swallowed > before, START_SECONDS, "it is lost"
        )
        return "the request"

    # The input

    def abort_upstream(self) -> str:
        self.harness.feed(50, abort=True)
        return "about 100 records aborted"

    def add_partitions(self) -> str:
        harness = self.harness
        topic = harness.topic(self.rng.choice(harness.growing))
        count = len(harness.ends(topic)) + 1
        if count > PARTITIONS_MAX:
            return self.abort_upstream()
        harness.admin.create_partitions([NewPartitions(topic, count)])[topic].result(START_SECONDS)
        wait_until(lambda: len(harness.ends(topic)) == count, START_SECONDS, "it is there")
        return f"{topic} has {count}"

    def poison(self) -> str:
        self.harness.feed_poison()
        return "one record of each kind a side"

    def _feed_for(self, seconds: float) -> None:
        """Keep producing meanwhile."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.harness.feed(10)

    @property
    def kinds(self) -> Mapping[str, Callable[[], str]]:
        has_intervals = self.harness.engine is Engine.REAL_TIME
        faults = (
            self.kill_the_process_tree, self.kill_in_a_transaction,
            *([] if has_intervals else [self.kill_at_a_failpoint]),
            self.kill_the_driver_s_python, self.kill_the_jvm, self.terminate, self.freeze,
            self.freeze_and_start_a_second_one, self.kill_the_broker, self.bounce_the_broker,
            self.pause_the_broker, self.cut_the_network, self.slow_the_network, self.hold_answers,
            self.lose_the_answer_to_a_commit, self.lose_a_commit, self.abort_upstream,
            self.add_partitions, self.poison,
        )  # fmt: skip
        return {fault.__name__: fault for fault in faults}
