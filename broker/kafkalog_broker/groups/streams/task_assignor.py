"""The assignor `sticky` of streams groups (Kafka's StickyTaskAssignor): tasks go to who had them, as far as all members
get about equally many, then to the process with the least load, and in it to the member with the fewest tasks.

Ties go as Kafka's priority queues decide them, with members and processes in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import NamedTuple

from kafkalog_broker.groups.modern.group_records import Partitions, TaskRole, TasksKey
from kafkalog_broker.groups.streams.java_priority_queue import JavaPriorityQueue

Task = tuple[str, int]  # subtopology id and partition
_by_partition = itemgetter(1, 0)


class TaskCount(NamedTuple):
    """Number of tasks of a subtopology. stateful: it has changelogs, and so standby tasks."""

    tasks: int
    stateful: bool


class AssignedTasks(NamedTuple):
    """A member as the assignor sees it. tasks: its target assignment so far."""

    process_id: str
    tasks: Partitions


@dataclass(slots=True, eq=False)
class _Member:
    process: _Process
    count: int = 0
    kept: Partitions = field(default_factory=dict)  # active tasks that it had
    tasks: dict[TasksKey, list[int]] = field(default_factory=dict)

    def assigned(self) -> Partitions:
        """`kept` itself where nothing has come to it."""
        if not self.tasks:
            return self.kept
        keys = sorted(self.kept.keys() | self.tasks.keys())
        return {key: tuple(sorted((*self.kept.get(key, ()), *self.tasks.get(key, ())))) for key in keys}


class _Process:
    """The members of one instance of the application, which share what is on its disk."""

    __slots__ = ("_count", "_queue", "assigned", "members")

    def __init__(self) -> None:
        self.members: list[_Member] = []
        self.assigned: set[Task] = set()
        self._count = 0
        self._queue: JavaPriorityQueue[_Member] | None = None

    @property
    def load(self) -> float:
        return self._count / len(self.members)

    def keep(self, member: _Member, tasks: Partitions, kept: Mapping[str, set[int]]) -> None:
        """Leave a member those of its active tasks that are kept, by subtopology."""
        member.count = sum(map(len, kept.values()))
        self._count += member.count
        if member.count == sum(map(len, tasks.values())):
            member.kept = tasks
        else:
            member.kept = {TasksKey(TaskRole.ACTIVE, name): tuple(sorted(some)) for name, some in kept.items() if some}

    def give(self, member: _Member, task: Task, role: TaskRole) -> int:
        """How many tasks the member has then."""
        self._queue = None
        return self._give(member, task, role)

    def give_to_least_loaded(self, task: Task, role: TaskRole) -> int:
        if len(self.members) == 1:
            return self._give(self.members[0], task, role)
        if self._queue is None:
            self._queue = JavaPriorityQueue(self.members, attrgetter("count"))
        member = self._queue.pop()
        count = self._give(member, task, role)
        self._queue.push(member)
        return count

    def _give(self, member: _Member, task: Task, role: TaskRole) -> int:
        self.assigned.add(task)
        subtopology_id, partition = task
        key = TasksKey(role, subtopology_id)
        if key in member.tasks:
            member.tasks[key].append(partition)
        else:
            member.tasks[key] = [partition]
        member.count += 1
        self._count += 1
        return member.count


class _Quota:
    """The tasks that a member gets at most of what is kept: it falls where members have reached it."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks, self._members = tasks, members
        self.tasks_per_member = -(-tasks // members)

    def given(self, count: int) -> None:
        if count == self.tasks_per_member:
            self._members -= 1
            self._tasks -= count
            self.tasks_per_member = -(-self._tasks // self._members) if self._members else 0


class _Assignment:
    def __init__(self, members: Mapping[str, AssignedTasks], topology: Mapping[str, TaskCount], replicas: int) -> None:
        processes: dict[str, _Process] = {
            process_id: _Process() for process_id in sorted({member.process_id for member in members.values()})
        }
        self.members: dict[str, _Member] = {}
        self.had: list[tuple[_Member, Partitions]] = []
        self.had_active: dict[Task, _Member] = {}
        self.had_standby: dict[Task, list[_Member]] = {}
        for member_id in sorted(members):
            process, tasks = processes[members[member_id].process_id], members[member_id].tasks
            member = self.members[member_id] = _Member(process)
            process.members.append(member)
            self.had.append((member, tasks))
            for (role, subtopology_id), partitions in tasks.items():
                if role is TaskRole.STANDBY:
                    for partition in partitions:
                        self.had_standby.setdefault((subtopology_id, partition), []).append(member)
                elif role is TaskRole.ACTIVE and replicas:
                    self.had_active.update(((subtopology_id, partition), member) for partition in partitions)
        self.processes = list(processes.values())
        self.replicas = replicas
        active = sum(count.tasks for count in topology.values())
        standby = replicas * sum(count.tasks for count in topology.values() if count.stateful)
        self.active, self.all = _Quota(active, len(members)), _Quota(active + standby, len(members))

    # ---- active tasks

    def assign_active(self, topology: Mapping[str, TaskCount]) -> None:
        free = {name: set(range(count.tasks)) for name, count in topology.items()}
        self._keep_active(free)
        tasks = [(name, partition) for name, partitions in free.items() for partition in partitions]
        if self.had_standby:
            tasks = [task for task in sorted(tasks, key=_by_partition) if not self._from_standby(task)]
        queue = JavaPriorityQueue(self.processes, attrgetter("load"))
        for task in sorted(tasks):
            process = queue.pop()
            self._active_given(process.give_to_least_loaded(task, TaskRole.ACTIVE))
            queue.push(process)

    def _keep_active(self, free: dict[str, set[int]]) -> None:
        """Members keep as many tasks as everybody gets, and one more where that comes soonest; taken from `free`."""
        least, extras = divmod(sum(map(len, free.values())), len(self.had))
        more: list[tuple[int, str, _Member]] = []
        for member, tasks in self.had:
            held = {name: free[name].intersection(some) for (role, name), some in tasks.items()
                    if role is TaskRole.ACTIVE and name in free}  # fmt: skip
            if sum(map(len, held.values())) > least:
                limit, last = sorted((index, name) for name, some in held.items() for index in some)[least]
                more.append((limit, last, member))
                held = {name: {index for index in some if (index, name) < (limit, last)} for name, some in held.items()}
            member.process.keep(member, tasks, held)
            for name, some in held.items():
                free[name] -= some
        for index, name, member in sorted(more)[:extras]:
            self._active_given(member.process.give(member, (name, index), TaskRole.ACTIVE))
            free[name].discard(index)

    def _from_standby(self, task: Task) -> bool:
        """True if an active task goes to who had it as a standby task."""
        member = self._least_loaded_standby(task)
        if member is None or member.count >= self.active.tasks_per_member:
            return False
        self._active_given(member.process.give(member, task, TaskRole.ACTIVE))
        return True

    def _active_given(self, count: int) -> None:
        self.active.given(count)
        self.all.given(count)

    # ---- standby tasks

    def assign_standby(self, tasks: list[Task]) -> None:
        for member in self.members.values():
            for (_, name), partitions in member.assigned().items():
                member.process.assigned.update((name, partition) for partition in partitions)
        left: list[tuple[Task, int]] = []
        for task in sorted(tasks, key=_by_partition, reverse=True):
            for replica in range(self.replicas):
                if not self._keep_standby(task):
                    left.append((task, self.replicas - replica))
                    break
        queue = JavaPriorityQueue(self.processes, attrgetter("load"))
        for task, count in sorted(left, reverse=True):
            for _ in range(count):
                if not self._give_standby(queue, task):
                    break  # more replicas than processes

    def _keep_standby(self, task: Task) -> bool:
        for member in (self.had_active.get(task), self._least_loaded_standby(task, without=True)):
            if member is not None and task not in member.process.assigned and member.count < self.all.tasks_per_member:
                self.all.given(member.process.give(member, task, TaskRole.STANDBY))
                return True
        return False

    def _give_standby(self, queue: JavaPriorityQueue[_Process], task: Task) -> bool:
        """To the process with the least load of those that have not got the task."""
        passed: list[_Process] = []
        given = False
        while len(queue) and not given:
            process = queue.pop()
            passed.append(process)
            if task not in process.assigned:
                self.all.given(process.give_to_least_loaded(task, TaskRole.STANDBY))
                given = True
        for process in reversed(passed):
            queue.push(process)
        return given

    def _least_loaded_standby(self, task: Task, *, without: bool = False) -> _Member | None:
        """Who had a standby task, in the process with the least load. without: not one that has got the task."""
        members = self.had_standby.get(task)
        if not members:
            return None
        first = best = members[0]
        load, count = best.process.load, best.count
        for member in members[1:]:
            process = member.process
            if process.load < load and not (without and task in process.assigned) and member.count < count:
                best, load, count = member, process.load, member.count
        # Kafka looks at the first one here, whoever is the best.
        return None if without and task in first.process.assigned else best


def assign_sticky(
    members: Mapping[str, AssignedTasks], topology: Mapping[str, TaskCount], replicas: int
) -> dict[str, Partitions]:
    """The target assignments of at least one member. topology: by subtopology id. replicas: standby tasks of each
    stateful task, as far as there are processes for them."""
    assignment = _Assignment(members, topology, replicas)
    assignment.assign_active(topology)
    if replicas:
        stateful = ((name, range(count.tasks)) for name, count in topology.items() if count.stateful)
        assignment.assign_standby([(name, index) for name, indexes in stateful for index in indexes])
    return {member_id: member.assigned() for member_id, member in assignment.members.items()}
