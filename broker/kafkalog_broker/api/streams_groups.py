"""Streams groups (KIP-1071): the applications of Kafka Streams.

88 StreamsGroupHeartbeat, version 0: a member of a streams group joins, goes on or leaves. The answer says which tasks
are its own from now on, and what is in the way of the application. Internal topics that are missing are made before.
89 StreamsGroupDescribe, version 0: topology, epochs, members and tasks of streams groups.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any

from kafkalog_broker.admin.topic_changes import DEFAULT, Charge, NewTopic, check_totals, create_topics
from kafkalog_broker.api.consumer_groups import Described, check_topics, describe_groups, stated_ms
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_records import Endpoint, Owned, Partitions, TaskRole, TasksKey, tasks_by_role
from kafkalog_broker.groups.streams.streams_endpoints import host_and_port
from kafkalog_broker.groups.streams.streams_group import CreationFailure, StreamsGroup, StreamsMember
from kafkalog_broker.groups.streams.streams_group_heartbeat import StreamsHeartbeatRequest, StreamsHeartbeatResponse
from kafkalog_broker.groups.streams.streams_group_status import StatusCode
from kafkalog_broker.groups.streams.topology import Subtopology, TopicInfo, Topology, topology_of
from kafkalog_broker.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import respond
from kafkalog_broker.storage.topic_registry import Outcome
from kafkalog_spark.format.names import is_internal, valid_topic_name

_log = logging.getLogger(__name__)
_ROLE_FIELDS = dict(zip(TaskRole, ("active_tasks", "standby_tasks", "warmup_tasks"), strict=True))
MOST_PARTS = 5_000
"""Subtopologies, topics, configs and members of copartition groups of a topology: all are checked, counted, hashed and
written in one step of the event loop. Applications of Kafka Streams have some hundred."""

_UNCHANGED = dict.fromkeys((*_ROLE_FIELDS.values(), "partitions_by_user_endpoint"))
"""Tasks and endpoints as in the last answer: kio has no defaults for these."""


@api(88, 0, 0)
def streams_group_heartbeat(request: Request, broker: Broker) -> Any:
    asked = request.entity
    try:
        topology = None if asked.topology is None else _topology(asked.topology)
        if topology is not None:
            _check_names(request, topology)
        answer = broker.groups.streams_group_heartbeat(_heartbeat(request, topology))
    except BrokerError as error:
        return respond(request, error_code=error.code, error_message=error.message, **_UNCHANGED)
    if answer.missing_topics:
        return _after_creation(request, broker, answer, answer.missing_topics)
    return _answer(request, answer)


def _topology(stated: Any) -> Topology:
    """Raises BrokerError: INVALID_REQUEST for one of too many parts, STREAMS_INVALID_TOPOLOGY."""
    parts = _parts(stated)
    if parts > MOST_PARTS:
        what = f"The topology has {parts} parts, at most {MOST_PARTS} are allowed."
        raise BrokerError(ErrorCode.invalid_request, what)

    def infos(topics: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        for topic in topics:
            configs = tuple((config.key, config.value) for config in topic.topic_configs)
            yield topic.name, topic.partitions, topic.replication_factor, configs

    return topology_of(stated.epoch, (
        (each.subtopology_id, each.source_topics, each.source_topic_regex, infos(each.state_changelog_topics),
         each.repartition_sink_topics, infos(each.repartition_source_topics),
         ((group.source_topics, group.source_topic_regex, group.repartition_source_topics)
          for group in each.copartition_groups))
        for each in stated.subtopologies
    ))  # fmt: skip


def _parts(topology: Any) -> int:
    """Number of elements in all arrays of a requested topology."""
    parts = len(topology.subtopologies)
    for each in topology.subtopologies:
        parts += len(each.source_topics) + len(each.source_topic_regex) + len(each.repartition_sink_topics)
        for topics in (each.state_changelog_topics, each.repartition_source_topics):
            parts += len(topics) + sum(len(topic.topic_configs) for topic in topics)
        for group in each.copartition_groups:
            parts += 1 + len(group.source_topics) + len(group.source_topic_regex) + len(group.repartition_source_topics)
    return parts


def _heartbeat(request: Request, topology: Topology | None) -> StreamsHeartbeatRequest:
    asked = request.entity
    stated = {role: tasks for role, name in _ROLE_FIELDS.items() if (tasks := getattr(asked, name)) is not None}
    endpoint, tags = asked.user_endpoint, asked.client_tags
    return StreamsHeartbeatRequest(
        asked.group_id, asked.member_id, asked.member_epoch, asked.instance_id, asked.rack_id,
        owned={TasksKey(role, each.subtopology_id): each.partitions for role, tasks in stated.items() for each in tasks}
        if len(stated) == len(TaskRole) else None,
        client_id=request.client_id or "",
        client_host=f"/{request.connection.host}",
        rebalance_timeout_ms=stated_ms(asked.rebalance_timeout),
        topology=topology,
        stated_roles={role: len(tasks) for role, tasks in stated.items()},
        process_id=asked.process_id,
        user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=None if tags is None else tuple(sorted({tag.key: tag.value for tag in tags}.items())),
        endpoint_epoch=asked.endpoint_information_epoch,
        has_task_offsets=asked.task_offsets is not None,
        has_task_end_offsets=asked.task_end_offsets is not None,
        shutdown_application=asked.shutdown_application,
    )  # fmt: skip


def _names(subtopologies: Collection[Subtopology]) -> list[str]:
    return list(dict.fromkeys(chain.from_iterable(
        (*each.source_topics, *each.repartition_sink_topics, *(topic.name for topic in each.internal_topics))
        for each in subtopologies
    )))  # fmt: skip


def _check_names(request: Request, topology: Topology) -> None:
    names = _names(topology.subtopologies)
    if prohibited := [name for name in names if is_internal(name)]:
        raise BrokerError(
            ErrorCode.streams_invalid_topology,
            f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited.",
        )
    if invalid := [name for name in names if not valid_topic_name(name)]:
        raise BrokerError(
            ErrorCode.streams_invalid_topology, f"Topic names {','.join(invalid)} are not valid topic names."
        )
    check_topics(request, names)


async def _after_creation(
    request: Request, broker: Broker, answer: StreamsHeartbeatResponse, missing: Mapping[str, TopicInfo]
) -> Any:  # fmt: skip
    """Also tells why topics could not be made, or may not."""
    refused = []
    if not request.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True):
        refused = [name for name in missing if not request.may(Operation.CREATE, ResourceType.TOPIC, name)]
    if refused:
        return _answer(request, answer, f"; Unauthorized to CREATE on topics {', '.join(refused)}.")
    group = broker.groups.streams_groups(request.entity.group_id).groups.get(request.entity.group_id)
    if group is None:
        return _answer(request, answer)
    more = group.creation_failures(missing, broker.clock.now_ms())
    await _create_internal_topics(broker, group, missing, request.charge, 2 * answer.interval_ms)
    return _answer(request, answer, more)


async def _create_internal_topics(
    broker: Broker, group: StreamsGroup, missing: Mapping[str, TopicInfo], charge: Charge, pause_ms: int
) -> None:
    """Make those that nobody is making (Kafka's AutoTopicCreationManager). Why one could not be made is kept for
    `pause_ms`, and it is not tried again as long."""
    now_ms = broker.clock.now_ms()
    new = [
        NewTopic(topic.name, topic.partitions, topic.replication_factor or DEFAULT, configs=dict(topic.topic_configs))
        for topic in missing.values()
        if topic.name not in group.creating and not group.creation_failures([topic.name], now_ms)
    ]
    if not new:
        return
    names = {topic.name for topic in new}
    group.creating |= names
    outcomes: list[Outcome] = []
    try:
        check_totals(broker, ((topic.partitions, 0) for topic in new))
        outcomes += await create_topics(broker, new, charge)
    except BrokerError as error:
        outcomes += [error] * len(new)
    finally:
        group.creating -= names
    for topic, outcome in zip(new, outcomes, strict=True):
        if isinstance(outcome, BrokerError) and outcome.code is not ErrorCode.topic_already_exists:
            _log.info("group %.200r: topic %s is not created: %s", group.group_id, topic.name, outcome)
            group.failed_topics[topic.name] = CreationFailure(outcome.what, now_ms + pause_ms)


def _answer(request: Request, answer: StreamsHeartbeatResponse, of_creation: str = "") -> Any:
    statuses = [
        {"status_code": int(code),
         "status_detail": detail + (of_creation if code is StatusCode.MISSING_INTERNAL_TOPICS else "")}
        for code, detail in answer.statuses
    ]  # fmt: skip
    changed: dict[str, Any] = dict(_UNCHANGED)
    if answer.assignment is not None:
        changed |= _tasks(answer.assignment)
    if answer.endpoints is not None:
        changed["partitions_by_user_endpoint"] = answer.endpoints
    return respond(
        request, member_id=answer.member_id, member_epoch=answer.member_epoch,
        heartbeat_interval=answer.interval_ms, status=statuses,
        endpoint_information_epoch=answer.endpoint_epoch, **changed,
    )  # fmt: skip


def _tasks(assigned: Partitions | Owned) -> dict[str, list[dict[str, Any]]]:
    return {
        name: [{"subtopology_id": subtopology_id, "partitions": tuple(parts)} for subtopology_id, parts in tasks]
        for name, tasks in zip(_ROLE_FIELDS.values(), tasks_by_role(assigned), strict=True)
    }


@api(89, 0, 0)
async def streams_group_describe(request: Request, broker: Broker) -> Any:
    def described(group: StreamsGroup) -> Described:
        fitted, topology = group.configured, None
        if fitted is not None and fitted.problem is None:  # internal topics are all there, and have partition counts
            subtopologies = [(name, each.subtopology) for name, each in fitted.subtopologies.items()]
        else:
            subtopologies = [] if group.topology is None else sorted(group.topology.by_id.items())
        if group.topology is not None:
            described = [_subtopology(*each) for each in subtopologies]
            topology = {"epoch": group.topology.epoch, "subtopologies": described}
        return _names([each for _, each in subtopologies]), {"topology": topology}, partial(_member, group)

    hidden = "The described group uses topics that the client is not authorized to describe."
    return await describe_groups(request, broker.groups.streams_groups, described, hidden)


def _subtopology(subtopology_id: str, subtopology: Subtopology) -> dict[str, Any]:
    def infos(topics: Collection[TopicInfo]) -> list[dict[str, Any]]:
        return [
            {**topic._asdict(), "topic_configs": [{"key": key, "value": value} for key, value in topic.topic_configs]}
            for topic in sorted(topics)
        ]

    return {
        "subtopology_id": subtopology_id, "source_topics": sorted(subtopology.source_topics),
        "repartition_sink_topics": sorted(subtopology.repartition_sink_topics),
        "state_changelog_topics": infos(subtopology.state_changelog_topics),
        "repartition_source_topics": infos(subtopology.repartition_source_topics),
    }  # fmt: skip


def _member(group: StreamsGroup, member: StreamsMember) -> dict[str, Any]:
    return {
        "topology_epoch": member.topology_epoch, "process_id": member.process_id,
        "user_endpoint": host_and_port(member.user_endpoint),
        "client_tags": [{"key": key, "value": value} for key, value in member.client_tags],
        "assignment": _tasks(member.assigned), "target_assignment": _tasks(group.target.get(member.member_id, {})),
    }  # fmt: skip
