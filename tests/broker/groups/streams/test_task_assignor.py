"""The assignor of streams groups: whatever the members, processes and subtopologies, and whoever comes and goes."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog_broker.groups.modern.group_records import Partitions, TaskRole
from kafkalog_broker.groups.streams.java_priority_queue import JavaPriorityQueue
from kafkalog_broker.groups.streams.task_assignor import AssignedTasks, TaskCount, assign_sticky
from tests.searches import examples

TOPOLOGIES = st.dictionaries(
    st.sampled_from("0123"), st.builds(TaskCount, st.integers(1, 9), st.booleans()), min_size=1
)
GROUPS = st.dictionaries(st.sampled_from("abcdefghij"), st.sampled_from("PQRS"), min_size=1)


def counted(assigned: dict[str, Partitions], role: TaskRole) -> Counter[tuple[str, int]]:
    return Counter(
        (key.subtopology_id, index)
        for tasks in assigned.values()
        for key, indexes in tasks.items()
        if key.role is role
        for index in indexes
    )


@settings(max_examples=examples(300))
@given(TOPOLOGIES, st.lists(GROUPS, min_size=1, max_size=4), st.integers(0, 2))
def test_each_task_has_one_owner_and_its_replicas_are_elsewhere(
    topology: dict[str, TaskCount], groups: list[dict[str, str]], replicas: int
) -> None:
    assigned: dict[str, Partitions] = {}
    for processes in groups:
        members = {name: AssignedTasks(process, assigned.get(name, {})) for name, process in processes.items()}
        assigned = assign_sticky(members, topology, replicas)
        assert assigned.keys() == processes.keys()
        active, standby = (counted(assigned, role) for role in (TaskRole.ACTIVE, TaskRole.STANDBY))
        tasks = {(name, index) for name, count in topology.items() for index in range(count.tasks)}
        assert active == dict.fromkeys(tasks, 1)
        copies = min(replicas, len(set(processes.values())) - 1)
        stateful = [task for task in tasks if topology[task[0]].stateful]
        assert standby == (dict.fromkeys(stateful, copies) if copies else {})
        holders: Counter[tuple[str, str, int]] = Counter()
        for name, held in assigned.items():
            holders.update((processes[name], key.subtopology_id, index) for key in held for index in held[key])
        assert not holders or max(holders.values()) == 1


@settings(max_examples=examples(200))
@given(TOPOLOGIES, GROUPS, st.integers(0, 2))
def test_assignment_of_an_unchanged_group_is_unchanged(
    topology: dict[str, TaskCount], processes: dict[str, str], replicas: int
) -> None:
    first = assign_sticky({name: AssignedTasks(process, {}) for name, process in processes.items()}, topology, replicas)
    kept = {name: AssignedTasks(process, first[name]) for name, process in processes.items()}
    again = assign_sticky(kept, topology, replicas)
    assert counted(again, TaskRole.ACTIVE) == counted(first, TaskRole.ACTIVE)
    if replicas == 0 or len(set(processes.values())) == 1:
        assert again == first


@settings(max_examples=examples(200))
@given(st.integers(1, 60), st.integers(1, 12))
def test_members_in_separate_processes_get_equally_many_tasks(tasks: int, members: int) -> None:
    topology = {"0": TaskCount(tasks, False)}
    specs = {f"m{number}": AssignedTasks(f"p{number}", {}) for number in range(members)}
    assigned = assign_sticky(specs, topology, 0)
    counts = [sum(map(len, held.values())) for held in assigned.values()]
    assert max(counts) - min(counts) <= 1
    less = {name: AssignedTasks(f"p{name[1:]}", assigned[name]) for name in list(specs)[:-1]}
    if less:
        after = assign_sticky(less, topology, 0)
        for name, held in after.items():
            before = {index for indexes in assigned[name].values() for index in indexes}
            assert before <= {index for indexes in held.values() for index in indexes}


@given(st.lists(st.integers(0, 9)))
def test_priority_queue_pops_the_least_loaded_first(loads: list[int]) -> None:
    heap = JavaPriorityQueue(list(enumerate(loads)), lambda item: item[1])
    taken = [heap.pop()[1] for _ in range(len(heap))]
    assert all(one <= other for one, other in pairwise(taken))
    assert sorted(taken) == sorted(loads)
