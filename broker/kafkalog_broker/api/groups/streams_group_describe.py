"""89 StreamsGroupDescribe, version 0: topology, epochs, members and tasks of streams groups (KIP-1071)."""

from __future__ import annotations

from functools import partial
from typing import Any

from kafkalog_broker.api.groups.modern_group_description import Fields, GroupDescription, describe_groups
from kafkalog_broker.api.groups.streams_group_structs import subtopology_fields, task_fields, topic_names
from kafkalog_broker.broker import Broker
from kafkalog_broker.groups.streams.streams_endpoints import host_and_port
from kafkalog_broker.groups.streams.streams_group import StreamsGroup, StreamsMember
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request

_HIDDEN_TOPICS = "The described group uses topics that the client is not authorized to describe."


@api(89, 0, 0)
async def streams_group_describe(request: Request, broker: Broker) -> Any:
    return await describe_groups(request, broker.groups.streams_groups, _describe, _HIDDEN_TOPICS)


def _describe(group: StreamsGroup) -> GroupDescription:
    configured = group.configured
    topology = None
    if configured is not None and configured.problem is None:  # all internal topics exist
        subtopologies = [(name, subtopology.subtopology) for name, subtopology in configured.subtopologies.items()]
    else:
        subtopologies = [] if group.topology is None else sorted(group.topology.by_id.items())
    if group.topology is not None:
        fields = [subtopology_fields(name, subtopology) for name, subtopology in subtopologies]
        topology = {"epoch": group.topology.epoch, "subtopologies": fields}
    names = topic_names([subtopology for _, subtopology in subtopologies])
    return GroupDescription(names, {"topology": topology}, partial(_member_fields, group))


def _member_fields(group: StreamsGroup, member: StreamsMember) -> Fields:
    return {
        "topology_epoch": member.topology_epoch, "process_id": member.process_id,
        "user_endpoint": host_and_port(member.user_endpoint),
        "client_tags": [{"key": key, "value": value} for key, value in member.client_tags],
        "assignment": task_fields(member.assigned),
        "target_assignment": task_fields(group.target.get(member.member_id, {})),
    }  # fmt: skip
