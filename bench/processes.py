"""The cost of a process tree, and of all other processes of the machine meanwhile.

One thread samples several times a second. CPU is user and system time together, including that of
ended children once their parent has waited for them.
"""

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import psutil

# Peaks of memory last longer than this. A sample costs 2 ms.
_LOOK_SECONDS = 0.2
_NOT_BUSY = ("idle", "iowait")
# Linux counts these in user and nice already.
_COUNTED_TWICE = ("guest", "guest_nice")


@dataclass(frozen=True)
class Sample:
    """CPU seconds used so far, and the tree's memory, at one moment."""

    at: float
    """Seconds since 1970: comparable with the timestamps of the broker."""
    tree: float
    broker: float
    harness: float
    machine: float
    tree_memory_bytes: int


@dataclass(frozen=True)
class Spent:
    """CPU seconds used between two moments."""

    seconds: float
    tree: float
    broker: float
    harness: float
    machine: float

    @property
    def tree_cores(self) -> float:
        return self.tree / self.seconds

    @property
    def foreign_cores(self) -> float:
        """Cores used by other processes than the measured program, its broker and this one."""
        return (self.machine - self.tree - self.broker - self.harness) / self.seconds


class Watch:
    """Samples a process tree until closed: `with Watch(pid, broker_pid=...) as watch:`."""

    def __init__(self, pid: int, *, broker_pid: int) -> None:
        self._tree = psutil.Process(pid)
        self._broker = psutil.Process(broker_pid)
        self._harness = psutil.Process()
        self._members: Mapping[int, int] = {}
        self._samples = [self._sample(tree_so_far=0.0)]
        self._closed = threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._looking.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed.set()
        self._looking.join()

    @property
    def peak_memory_bytes(self) -> int:
        return max(sample.tree_memory_bytes for sample in self._samples)

    @property
    def samples(self) -> list[Sample]:
        """All samples so far, oldest first."""
        return list(self._samples)

    def spent(self, since: float, until: float) -> Spent:
        return spent(self._samples, since, until)

    def _look(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            self._samples.append(self._sample(self._samples[-1].tree))

    def _sample(self, tree_so_far: float) -> Sample:
        tree, members = tree_usage(self._tree)
        memory, self._members = lasting_memory(members, before=self._members), members
        return Sample(
            at=time.time(),
            # A child may end after it was listed and before it is sampled.
            tree=max(tree, tree_so_far),
            broker=_own_cpu(self._broker),
            harness=_own_cpu(self._harness),
            machine=_machine_cpu(),
            tree_memory_bytes=memory,
        )


def tree_usage(root: psutil.Process) -> tuple[float, dict[int, int]]:
    """CPU seconds of a process and its descendants, and resident bytes by process id."""
    cpu, memory = 0.0, dict[int, int]()
    try:
        members = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return cpu, memory
    for member in members:
        try:
            with member.oneshot():
                times = member.cpu_times()
                memory[member.pid] = member.memory_info().rss
        except psutil.NoSuchProcess:
            continue
        cpu += times.user + times.system + times.children_user + times.children_system
    return cpu, memory


def lasting_memory(members: Mapping[int, int], *, before: Mapping[int, int]) -> int:
    """Resident bytes of those processes that the previous sample contained as well.

    A JVM starts a command by vfork: until the command is loaded, the new process shows all of the
    JVM's memory as its own. Spark does so for each checkpoint file; 2 GiB were counted as 6.
    """
    return sum(memory for pid, memory in members.items() if pid in before)


def peak_memory(samples: list[Sample], since: float, until: float) -> int:
    return max(
        (sample.tree_memory_bytes for sample in samples if since <= sample.at <= until), default=0
    )


def memory_at(samples: list[Sample], moment: float) -> int:
    """Resident bytes of the tree in the last sample until then."""
    return next(sample.tree_memory_bytes for sample in reversed(samples) if sample.at <= moment)


def spent(samples: list[Sample], since: float, until: float) -> Spent:
    """The use between two moments, interpolated between the samples."""

    def difference(counter: Callable[[Sample], float]) -> float:
        return _at(samples, counter, until) - _at(samples, counter, since)

    return Spent(
        seconds=difference(lambda sample: sample.at),
        tree=difference(lambda sample: sample.tree),
        broker=difference(lambda sample: sample.broker),
        harness=difference(lambda sample: sample.harness),
        machine=difference(lambda sample: sample.machine),
    )


def _at(samples: list[Sample], counter: Callable[[Sample], float], moment: float) -> float:
    after = bisect_left(samples, moment, key=lambda sample: sample.at)
    if after in {0, len(samples)}:
        return counter(samples[min(after, len(samples) - 1)])
    before, next_one = samples[after - 1], samples[after]
    share = (moment - before.at) / (next_one.at - before.at)
    return counter(before) + share * (counter(next_one) - counter(before))


def _own_cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _machine_cpu() -> float:
    """CPU seconds that were not idle, including those that other guests of the host used."""
    times = psutil.cpu_times()._asdict()
    return float(sum(times[name] for name in times if name not in _NOT_BUSY + _COUNTED_TWICE))
