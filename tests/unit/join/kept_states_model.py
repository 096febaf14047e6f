"""A model of tasks, state stores and the states that executors keep on the heap (KeptStates.java).

A task loads one version of the store and writes the next one. It may fail before or after it has
written, the driver may repeat a batch that was written, an executor may end, and a task that the
driver has given up may still run while the next one runs.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

_EXECUTORS = 2
_ROWS_MAX = 4


class WrongContentError(AssertionError):
    """The rows on the heap of a task are not those of the versions that it has loaded."""


@dataclass(frozen=True)
class Version:
    number: int
    id: int
    rows: frozenset[int]


@dataclass
class Kept:
    rows: set[int]
    number: int
    id: int


@dataclass(eq=False)
class Task:
    executor: int
    loaded: Version
    id: int
    """Of the version that the task writes. Spark chooses it at random when the task loads."""
    heap: set[int]
    expected: set[int]
    """What `heap` must be: a copy that no other task has."""
    written: Version | None = None


def is_content(kept: Kept, loaded: Version) -> bool:
    """Whether a kept state is the content of the loaded version."""
    return kept.id == loaded.id


@dataclass
class World:
    """The fields with a default are the protocol: a test plants bugs in them."""

    dice: random.Random
    is_content: Callable[[Kept, Version], bool] = is_content
    takes: bool = True
    """Whether a task removes the kept state that it uses."""
    keeps: Callable[[Task], int] = lambda task: task.id
    """The id of the version with which a task keeps its rows."""
    committed: list[Version] = field(default_factory=lambda: [Version(0, 0, frozenset())])
    kept: dict[int, Kept] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)
    reuses: int = 0
    """How often a task used a kept state."""
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def step(self) -> None:
        """Raises WrongContentError."""
        steps = [self._begin, self._read, self._read, self._write, self._commit, self._commit]
        self.dice.choice([*steps, self._fail, self._end_executor, self._restore])()
        for task in self.tasks:
            if task.written is None and task.heap != task.expected:
                raise WrongContentError(f"{sorted(task.heap)} != {sorted(task.expected)}")

    def _begin(self) -> None:
        executor, loaded = self.dice.randrange(_EXECUTORS), self.committed[-1]
        kept = self.kept.get(executor)
        if self.takes:
            self.kept.pop(executor, None)
        heap = set(loaded.rows)
        if kept is not None and self.is_content(kept, loaded):
            heap = kept.rows
            self.reuses += 1
        self.tasks.append(Task(executor, loaded, next(self.numbers), heap, set(loaded.rows)))

    def _read(self) -> None:
        """An attempt may read other rows than the one before it: an interval ends at other
        offsets. Old rows expire."""
        if (task := self._any(lambda each: each.written is None)) is not None:
            row = next(self.numbers)
            for rows in (task.heap, task.expected):
                rows.add(row)
                rows -= set(sorted(rows)[:-_ROWS_MAX])

    def _write(self) -> None:
        """The last write of a task, then it keeps its rows. The commit of the store follows."""
        if (task := self._any(lambda each: each.written is None)) is not None:
            task.written = Version(task.loaded.number + 1, task.id, frozenset(task.expected))
            self.kept[task.executor] = Kept(task.heap, task.written.number, self.keeps(task))

    def _commit(self) -> None:
        """The driver records the version of a task of the present batch."""
        task = self._any(lambda each: each.written is not None)
        if task is not None and task.loaded is self.committed[-1]:
            assert task.written is not None
            self.committed.append(task.written)
            self.tasks.remove(task)

    def _fail(self) -> None:
        """A task ends and its version is not recorded."""
        if (task := self._any(lambda _: True)) is not None:
            self.tasks.remove(task)

    def _end_executor(self) -> None:
        ended = self.dice.randrange(4 * _EXECUTORS)
        self.kept.pop(ended, None)
        self.tasks = [task for task in self.tasks if task.executor != ended]

    def _restore(self) -> None:
        """An older checkpoint is restored. Tasks that still run belong to the query before."""
        if self.dice.random() < 1 / 4:
            self.committed = self.committed[: self.dice.randint(1, len(self.committed))]

    def _any(self, is_wanted: Callable[[Task], bool]) -> Task | None:
        found = [task for task in self.tasks if is_wanted(task)]
        return self.dice.choice(found) if found else None
