"""34 AlterReplicaLogDirs, versions 1 and 2 (KIP-113): partitions stay in the log directory in which they were created.

Kafka would move a partition to another directory of the broker. Here the response is POLICY_VIOLATION, which clients do
not retry.
"""

from __future__ import annotations

import logging
from typing import Any

from kafkalog_broker.api.itemized_responses import respond_in_slices
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import api, on_error
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.runtime.log_rate import LogRate

_refusal_log = LogRate(logging.getLogger(__name__))

_MAX_DIRECTORY_NAME = 255 - len(".") - 32 - len("-future")
"""Length of the longest directory name of a partition that leaves room for Kafka's suffix `.<uuid>-future`."""


@api(34, 1, 2)
async def alter_replica_log_dirs(request: Request, broker: Broker) -> Any:
    """Handle AlterReplicaLogDirs. As in Kafka, the last of several directories for one partition counts."""
    paths: dict[str, dict[int, str]] = {}
    for directory in request.entity.dirs:
        for topic in directory.topics:
            paths.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, directory.path))
    time_slice = TimeSlice()
    results = []
    for name, path_by_index in paths.items():
        partitions = [
            {"partition_index": index, "error_code": _move_error(broker, name, index, path)}
            async for index, path in time_slice.spread(path_by_index.items())
        ]
        results.append({"topic_name": name, "partitions": partitions})
    return await respond_in_slices(request, "results", results)


@on_error(34)
def alter_replica_log_dirs_error(request: Request, code: ErrorCode) -> Any:
    topics = [topic for directory in request.entity.dirs for topic in directory.topics]
    return build_response(request, results=[
        {"topic_name": topic.name, "partitions": [{"partition_index": i, "error_code": code} for i in topic.partitions]}
        for topic in topics
    ])  # fmt: skip


def _move_error(broker: Broker, topic: str, partition: int, path: str) -> ErrorCode:
    """Return the error of one move. Checks are in the order of Kafka's `ReplicaManager.alterReplicaLogDirs`."""
    if len(f"{topic}-{partition}") > _MAX_DIRECTORY_NAME:
        return ErrorCode.invalid_topic_exception
    target = next((log_dir for log_dir in broker.logs.dirs.all if str(log_dir.path.absolute()) == path), None)
    if target is None:
        return ErrorCode.log_dir_not_found
    if not target.is_online:
        return ErrorCode.kafka_storage_error
    current = broker.logs.log_dir(topic, partition)
    if current is None:
        return ErrorCode.unknown_topic_or_partition
    if current is target:
        return ErrorCode.none
    _refusal_log.log(
        logging.WARNING,
        "%s-%s is in %s and is not moved to %s: this broker does not move partitions between log directories",
        topic, partition, current.path, target.path,
    )  # fmt: skip
    return ErrorCode.policy_violation
