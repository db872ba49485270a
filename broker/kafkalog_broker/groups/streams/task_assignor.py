"""The assignor `sticky` of streams groups (Kafka's StickyTaskAssignor).

Tasks stay with their previous owner as long as the load stays balanced. The other tasks go to the least loaded process,
and there to the member with the fewest tasks. Ties are resolved like in Kafka's priority queues, with members and
processes in the order of their IDs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import NamedTuple

from kafkalog_broker.groups.modern.group_records import Partitions, TaskRole, TasksKey
from kafkalog_broker.groups.streams.java_priority_queue import JavaPriorityQueue

Task = tuple[str, int]
"""Subtopology ID and partition. A plain tuple, because there is one for each task of a large group."""
_by_partition = itemgetter(1, 0)


class TaskCount(NamedTuple):
    """Number of tasks of a subtopology. Stateful subtopologies have changelogs, and therefore standby tasks."""

    tasks: int
    stateful: bool


class AssignedTasks(NamedTuple):
    """A member as the assignor sees it. `tasks` is its current target assignment."""

    process_id: str
    tasks: Partitions


def assign_sticky(
    members: Mapping[str, AssignedTasks], topology: Mapping[str, TaskCount], replicas: int
) -> dict[str, Partitions]:
    """Return the target assignment by member ID.

    Args:
        members: By member ID. Must not be empty.
        topology: By subtopology ID.
        replicas: Number of standby tasks of each stateful task. Limited by the number of processes.
    """
    assignment = _Assignment(members, topology, replicas)
    assignment.assign_active(topology)
    if replicas:
        stateful = ((name, range(count.tasks)) for name, count in topology.items() if count.stateful)
        assignment.assign_standby([(name, index) for name, indexes in stateful for index in indexes])
    return {member_id: member.assigned() for member_id, member in assignment.members.items()}


class _Assignment:
    """An assignment under construction."""

    def __init__(self, members: Mapping[str, AssignedTasks], topology: Mapping[str, TaskCount], replicas: int) -> None:
        processes: dict[str, _Process] = {
            process_id: _Process() for process_id in sorted({member.process_id for member in members.values()})
        }
        self.members: dict[str, _Member] = {}
        self.previous_tasks: list[tuple[_Member, Partitions]] = []
        self.previous_active: dict[Task, _Member] = {}  # previous owners of active tasks; empty without replicas
        self.previous_standby: dict[Task, list[_Member]] = {}  # previous owners of standby tasks
        for member_id in sorted(members):
            process = processes[members[member_id].process_id]
            tasks = members[member_id].tasks
            member = self.members[member_id] = _Member(process)
            process.members.append(member)
            self.previous_tasks.append((member, tasks))
            for (role, subtopology_id), partitions in tasks.items():
                if role is TaskRole.STANDBY:
                    for partition in partitions:
                        self.previous_standby.setdefault((subtopology_id, partition), []).append(member)
                elif role is TaskRole.ACTIVE and replicas:
                    self.previous_active.update(((subtopology_id, partition), member) for partition in partitions)
        self.processes = list(processes.values())
        self.replicas = replicas
        active = sum(count.tasks for count in topology.values())
        standby = replicas * sum(count.tasks for count in topology.values() if count.stateful)
        self.active_quota = _Quota(active, len(members))
        self.total_quota = _Quota(active + standby, len(members))

    def assign_active(self, topology: Mapping[str, TaskCount]) -> None:
        unassigned = {name: set(range(count.tasks)) for name, count in topology.items()}
        self._keep_active(unassigned)
        tasks = [(name, partition) for name, partitions in unassigned.items() for partition in partitions]
        if self.previous_standby:
            tasks = [task for task in sorted(tasks, key=_by_partition) if not self._promote_standby(task)]
        queue = JavaPriorityQueue(self.processes, attrgetter("load"))
        for task in sorted(tasks):
            process = queue.pop()
            self._record_active(process.assign_to_least_loaded(task, TaskRole.ACTIVE))
            queue.push(process)

    def _keep_active(self, unassigned: dict[str, set[int]]) -> None:
        """Let each member keep up to floor(tasks / members) of its active tasks, and remove them from `unassigned`.

        The remainder is divided among the members whose next task has the lowest (partition, subtopology ID), which
        get one task each.
        """
        quota, remainder = divmod(sum(map(len, unassigned.values())), len(self.previous_tasks))
        candidates: list[tuple[int, str, _Member]] = []
        for member, tasks in self.previous_tasks:
            kept = {
                name: unassigned[name].intersection(partitions)
                for (role, name), partitions in tasks.items()
                if role is TaskRole.ACTIVE and name in unassigned
            }
            if sum(map(len, kept.values())) > quota:
                ordered = sorted((partition, name) for name, partitions in kept.items() for partition in partitions)
                next_task = ordered[quota]
                candidates.append((*next_task, member))
                kept = {
                    name: {partition for partition in partitions if (partition, name) < next_task}
                    for name, partitions in kept.items()
                }
            member.process.keep(member, tasks, kept)
            for name, partitions in kept.items():
                unassigned[name] -= partitions
        for partition, name, member in sorted(candidates)[:remainder]:
            self._record_active(member.process.assign(member, (name, partition), TaskRole.ACTIVE))
            unassigned[name].discard(partition)

    def _promote_standby(self, task: Task) -> bool:
        """Assign an active task to a previous owner of its standby task. Returns False if none has room."""
        member = self._least_loaded_standby(task)
        if member is None or member.count >= self.active_quota.tasks_per_member:
            return False
        self._record_active(member.process.assign(member, task, TaskRole.ACTIVE))
        return True

    def _record_active(self, count: int) -> None:
        self.active_quota.record(count)
        self.total_quota.record(count)

    def assign_standby(self, tasks: list[Task]) -> None:
        for member in self.members.values():
            for (_, name), partitions in member.assigned().items():
                member.process.assigned.update((name, partition) for partition in partitions)
        unassigned: list[tuple[Task, int]] = []  # tasks and the number of their missing replicas
        for task in sorted(tasks, key=_by_partition, reverse=True):
            for replica in range(self.replicas):
                if not self._assign_standby_to_previous(task):
                    unassigned.append((task, self.replicas - replica))
                    break
        queue = JavaPriorityQueue(self.processes, attrgetter("load"))
        for task, count in sorted(unassigned, reverse=True):
            for _ in range(count):
                if not self._assign_standby_to_least_loaded(queue, task):
                    break  # more replicas than processes

    def _assign_standby_to_previous(self, task: Task) -> bool:
        for member in (self.previous_active.get(task), self._least_loaded_standby(task, exclude_assigned=True)):
            if (
                member is not None
                and task not in member.process.assigned
                and member.count < self.total_quota.tasks_per_member
            ):
                self.total_quota.record(member.process.assign(member, task, TaskRole.STANDBY))
                return True
        return False

    def _assign_standby_to_least_loaded(self, queue: JavaPriorityQueue[_Process], task: Task) -> bool:
        """Assign a standby task to the least loaded process that does not have the task yet."""
        popped: list[_Process] = []
        is_assigned = False
        while len(queue) and not is_assigned:
            process = queue.pop()
            popped.append(process)
            if task not in process.assigned:
                self.total_quota.record(process.assign_to_least_loaded(task, TaskRole.STANDBY))
                is_assigned = True
        for process in reversed(popped):
            queue.push(process)
        return is_assigned

    def _least_loaded_standby(self, task: Task, *, exclude_assigned: bool = False) -> _Member | None:
        """Return the previous owner of a standby task in the least loaded process.

        Args:
            exclude_assigned: Skip processes that have the task.
        """
        members = self.previous_standby.get(task)
        if not members:
            return None
        first = best = members[0]
        load = best.process.load
        count = best.count
        for member in members[1:]:
            process = member.process
            is_excluded = exclude_assigned and task in process.assigned
            if process.load < load and not is_excluded and member.count < count:
                best = member
                load = process.load
                count = member.count
        # Like Kafka, this checks the first member, even if another one is the best.
        return None if exclude_assigned and task in first.process.assigned else best


@dataclass(slots=True, eq=False)
class _Member:
    process: _Process
    count: int = 0  # number of tasks
    kept: Partitions = field(default_factory=dict)  # previous active tasks that it keeps
    tasks: dict[TasksKey, list[int]] = field(default_factory=dict)  # tasks that were added

    def assigned(self) -> Partitions:
        """Return all tasks: `kept` itself if no task was added."""
        if not self.tasks:
            return self.kept
        keys = sorted(self.kept.keys() | self.tasks.keys())
        return {key: tuple(sorted((*self.kept.get(key, ()), *self.tasks.get(key, ())))) for key in keys}


class _Process:
    """The members of one instance of the application, which share its local state."""

    __slots__ = ("_count", "_queue", "assigned", "members")

    def __init__(self) -> None:
        self.members: list[_Member] = []
        self.assigned: set[Task] = set()
        self._count = 0  # number of tasks of all members
        self._queue: JavaPriorityQueue[_Member] | None = None

    @property
    def load(self) -> float:
        return self._count / len(self.members)

    def keep(self, member: _Member, tasks: Partitions, kept: Mapping[str, set[int]]) -> None:
        """Let a member keep the active tasks `kept` (partitions by subtopology ID) of its previous `tasks`."""
        member.count = sum(map(len, kept.values()))
        self._count += member.count
        if member.count == sum(map(len, tasks.values())):
            member.kept = tasks
        else:
            member.kept = {
                TasksKey(TaskRole.ACTIVE, name): tuple(sorted(partitions))
                for name, partitions in kept.items()
                if partitions
            }

    def assign(self, member: _Member, task: Task, role: TaskRole) -> int:
        """Assign a task to a member, and return its new number of tasks."""
        self._queue = None
        return self._assign(member, task, role)

    def assign_to_least_loaded(self, task: Task, role: TaskRole) -> int:
        """Assign a task to the member with the fewest tasks, and return its new number of tasks."""
        if len(self.members) == 1:
            return self._assign(self.members[0], task, role)
        if self._queue is None:
            self._queue = JavaPriorityQueue(self.members, attrgetter("count"))
        member = self._queue.pop()
        count = self._assign(member, task, role)
        self._queue.push(member)
        return count

    def _assign(self, member: _Member, task: Task, role: TaskRole) -> int:
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
    """Largest number of tasks of a member. When a member reaches it, it is computed again for the remaining members."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.tasks_per_member = -(-tasks // members)

    def record(self, count: int) -> None:
        """Record that a member has this number of tasks now."""
        if count == self.tasks_per_member:
            self._members -= 1
            self._tasks -= count
            self.tasks_per_member = -(-self._tasks // self._members) if self._members else 0
