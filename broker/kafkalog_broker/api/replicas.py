"""Log directories, replicas and leaders of partitions.

35 DescribeLogDirs, versions 1 to 5. v3: error of the whole; v4: bytes of the file system (KIP-827); v5: cordoned.

34 AlterReplicaLogDirs, versions 1 and 2 (KIP-113): partitions stay in the log directory in which they were made.
Another one of this broker is POLICY_VIOLATION, where Kafka would move the partition: clients do not try that again.

43 ElectLeaders, versions 0 to 2: the one replica that a partition has is its leader already.
45 AlterPartitionReassignments, versions 0 and 1 (KIP-455): partitions stay on the one node there is; 46
ListPartitionReassignments, version 0: none are ever under way.
"""

from __future__ import annotations

import logging
from typing import Any

from kafkalog_broker.admin.responses import respond_by_partition, respond_in_slices
from kafkalog_broker.admin.topic_changes import check_assignment
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import respond
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.runtime.log_rate import LogRate


@api(35, 1, 5)
async def describe_log_dirs(request: Request, broker: Broker) -> Any:
    topics = request.entity.topics
    chosen = None if topics is None else {(topic.topic, index) for topic in topics for index in topic.partitions}
    results = []
    for log_dir, total_bytes, usable_bytes, sizes in broker.logs.usage():
        by_topic: dict[str, list[dict[str, int]]] = {}
        for (topic, partition), size in sizes.items():
            if chosen is None or (topic, partition) in chosen:
                by_topic.setdefault(topic, []).append({"partition_index": partition, "partition_size": size})
        results.append({
            "error_code": ErrorCode.none if log_dir.is_online else ErrorCode.kafka_storage_error,
            "log_dir": str(log_dir.path.absolute()),
            "topics": [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()],
            "total_bytes": total_bytes, "usable_bytes": usable_bytes,
            "is_cordoned": str(log_dir.path) in broker.config.cordoned_log_dirs,
        })  # fmt: skip
    return respond(request, results=results)


_refused = LogRate(logging.getLogger(__name__))

_LONGEST_NAME = 255 - len(".") - 32 - len("-future")
"""The longest name of a directory that Kafka's suffix for where a partition is moved to can be added to."""


@api(34, 1, 2)
async def alter_replica_log_dirs(request: Request, broker: Broker) -> Any:
    """A partition that is named more than once goes to where the last one says, as in Kafka."""
    wanted: dict[str, dict[int, str]] = {}
    for directory in request.entity.dirs:
        for topic in directory.topics:
            wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, directory.path))
    turn, results = TimeSlice(), []
    for name, partitions in wanted.items():
        answers = [
            {"partition_index": index, "error_code": _code(broker, name, index, path)}
            async for index, path in turn.spread(partitions.items())
        ]
        results.append({"topic_name": name, "partitions": answers})
    return await respond_in_slices(request, "results", results)


@on_error(34)
def failed(request: Request, code: ErrorCode) -> Any:
    topics = [topic for directory in request.entity.dirs for topic in directory.topics]
    return respond(request, results=[
        {"topic_name": topic.name, "partitions": [{"partition_index": i, "error_code": code} for i in topic.partitions]}
        for topic in topics
    ])  # fmt: skip


def _code(broker: Broker, name: str, index: int, path: str) -> ErrorCode:
    """In Kafka's order (ReplicaManager.alterReplicaLogDirs)."""
    if len(f"{name}-{index}") > _LONGEST_NAME:
        return ErrorCode.invalid_topic_exception
    there = next((one for one in broker.logs.dirs.all if str(one.path.absolute()) == path), None)
    if there is None:
        return ErrorCode.log_dir_not_found
    if not there.is_online:
        return ErrorCode.kafka_storage_error
    own = broker.logs.log_dir(name, index)
    if own is None:
        return ErrorCode.unknown_topic_or_partition
    if own is there:
        return ErrorCode.none
    _refused.log(
        logging.WARNING,
        "%s-%s is in %s and is not moved to %s: this broker does not move partitions between log directories",
        name, index, own.path, there.path,
    )  # fmt: skip
    return ErrorCode.policy_violation


PREFERRED, UNCLEAN = 0, 1  # election types


@api(43, 0, 2)
async def elect_leaders(request: Request, broker: Broker) -> Any:
    topics, election_type = request.entity.topic_partitions, getattr(request.entity, "election_type", PREFERRED)
    is_known = election_type in (PREFERRED, UNCLEAN)
    code = ErrorCode.none if is_known else ErrorCode.invalid_request
    if topics is None:
        # All partitions: those that need no election are left out, which are all.
        results = [{"topic": topic.name} for topic in broker.topics] if is_known else []
        return respond(request, error_code=code, replica_election_results=results)

    def answer(topic: Any, index: int) -> dict[str, Any]:
        name, error = topic.topic, ErrorCode.unknown_topic_or_partition
        if not is_known:
            error, what = ErrorCode.invalid_request, f"Unknown election type {election_type}"
        elif (known := broker.topics.get(name)) is None:
            what = f"No such topic as {name}"
        elif not 0 <= index < known.partitions:
            what = f"No such partition as {name}-{index}"
        else:
            error, what = ErrorCode.election_not_needed, "Leader election not needed for topic partition."
        return {"error_code": error, "error_message": what}

    return await respond_by_partition(request, answer, error_code=code)


@api(45, 0, 1)
async def alter_partition_reassignments(request: Request, broker: Broker) -> Any:
    def answer(topic: Any, partition: Any) -> dict[str, Any]:
        name, index, replicas = topic.name, partition.partition_index, partition.replicas
        known, code = broker.topics.get(name), ErrorCode.unknown_topic_or_partition
        if known is None:
            raise BrokerError(code, f"Unable to find a topic named {name}.")
        if not 0 <= index < known.partitions:
            raise BrokerError(code, f"Unable to find partition {name}:{index}.")
        if replicas is None:
            return {"error_code": ErrorCode.no_reassignment_in_progress}
        check_assignment(broker, replicas)
        return {}

    can_change = getattr(request.entity, "allow_replication_factor_change", True)
    return await respond_by_partition(request, answer, allow_replication_factor_change=can_change)


@api(46, 0, 0)
async def list_partition_reassignments(request: Request, broker: Broker) -> Any:
    return respond(request)
