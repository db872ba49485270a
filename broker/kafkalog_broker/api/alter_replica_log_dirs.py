"""34 AlterReplicaLogDirs, versions 1 and 2: partitions stay in the log directory in which they were made (KIP-113).

To be where it is already is done, as in Kafka; what is no log directory is LOG_DIR_NOT_FOUND. Another one of this
broker is POLICY_VIOLATION, where Kafka would move the partition: clients do not try that again.
"""

from __future__ import annotations

import logging
from typing import Any

from kafkalog_broker.admin.responses import per_partition
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, respond, response_module
from kafkalog_broker.runtime.process import LogRate

_logger = logging.getLogger(__name__)
_refused = LogRate(_logger)

_LONGEST_DIRECTORY = 255
_FUTURE_SUFFIX = len(".") + 32 + len("-future")
"""Suffix of Kafka's for the name of the directory that a partition is moved to."""


@api(34, 1, 2)
async def handle(request: Request, broker: Broker) -> Any:
    """A partition that is named more than once goes to where the last one says, as in Kafka."""
    wanted: dict[str, dict[int, str]] = {}
    for directory in request.entity.dirs:
        for topic in directory.topics:
            wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, directory.path))
    module = response_module(request)
    results = []
    for name, partitions in wanted.items():
        answered = []
        for index, path in partitions.items():
            code = _code(broker, name, index, path)
            answered.append(entity(module.AlterReplicaLogDirPartitionResult, partition_index=index, error_code=code))
        results.append(entity(module.AlterReplicaLogDirTopicResult, topic_name=name, partitions=tuple(answered)))
    return respond(request, results=tuple(results))


@on_error(34)
async def failed(request: Request, code: ErrorCode) -> Any:
    module = response_module(request)

    def of_partition(topic: Any, index: int) -> Any:
        return entity(module.AlterReplicaLogDirPartitionResult, partition_index=index, error_code=code)

    def of_topic(topic: Any, partitions: Any) -> Any:
        return entity(module.AlterReplicaLogDirTopicResult, topic_name=topic.name, partitions=partitions)

    named = [topic for directory in request.entity.dirs for topic in directory.topics]
    return respond(request, results=await per_partition(named, of_partition, of_topic))


def _code(broker: Broker, name: str, index: int, path: str) -> ErrorCode:
    """In Kafka's order (ReplicaManager.alterReplicaLogDirs)."""
    if len(f"{name}-{index}") + _FUTURE_SUFFIX > _LONGEST_DIRECTORY:
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
