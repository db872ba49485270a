"""Log directories, replicas and leaders of partitions.

35 DescribeLogDirs, versions 1 to 5. v3: error of the whole; v4: bytes of the file system (KIP-827); v5: cordoned.

34 AlterReplicaLogDirs, versions 1 and 2: partitions stay in the log directory in which they were made (KIP-113).

To be where it is already is done, as in Kafka; what is no log directory is LOG_DIR_NOT_FOUND. Another one of this
broker is POLICY_VIOLATION, where Kafka would move the partition: clients do not try that again.

43 ElectLeaders, versions 0 to 2: the one replica that a partition has is its leader already.

45 AlterPartitionReassignments, versions 0 and 1 (KIP-455): partitions stay on the one node there is; 46
ListPartitionReassignments, version 0: none are ever under way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kafkalog_broker.admin.responses import per_partition
from kafkalog_broker.admin.topic_checks import check_assignment
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, respond, response_module
from kafkalog_broker.runtime.process import LogRate
from kafkalog_broker.storage.log_directory import LogDirUsage, PartitionUsage


@api(35, 1, 5)
async def describe_log_dirs(request: Request, broker: Broker) -> Any:
    module = response_module(request)
    asked = request.entity.topics
    wanted = None
    if asked is not None:
        wanted = {(topic.topic, index) for topic in asked for index in topic.partitions}
    return respond(
        request,
        error_code=ErrorCode.none,
        results=tuple(_result(module, usage, wanted, broker) for usage in broker.logs.usage()),
    )


def _result(module: Any, usage: LogDirUsage, wanted: set[tuple[str, int]] | None, broker: Broker) -> Any:
    by_topic: dict[str, list[PartitionUsage]] = {}
    for partition in usage.partitions:
        if wanted is None or (partition.topic, partition.partition) in wanted:
            by_topic.setdefault(partition.topic, []).append(partition)
    return entity(
        module.DescribeLogDirsResult,
        error_code=ErrorCode.none if usage.failure is None else ErrorCode.kafka_storage_error,
        log_dir=str(usage.path.absolute()),
        topics=tuple(
            entity(
                module.DescribeLogDirsTopic,
                name=name,
                partitions=tuple(
                    entity(
                        module.DescribeLogDirsPartition,
                        partition_index=partition.partition,
                        partition_size=partition.size,
                        offset_lag=0,
                        is_future_key=False,
                    )
                    for partition in partitions
                ),
            )
            for name, partitions in by_topic.items()
        ),
        total_bytes=usage.total_bytes,
        usable_bytes=usage.usable_bytes,
        is_cordoned=str(usage.path) in broker.config.cordoned_log_dirs,
    )


_logger = logging.getLogger(__name__)
_refused = LogRate(_logger)

_LONGEST_DIRECTORY = 255
_FUTURE_SUFFIX = len(".") + 32 + len("-future")
"""Suffix of Kafka's for the name of the directory that a partition is moved to."""


@api(34, 1, 2)
async def alter_replica_log_dirs(request: Request, broker: Broker) -> Any:
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


PREFERRED, UNCLEAN = 0, 1  # election types
Outcome = tuple[ErrorCode, str | None]


class _Topic(NamedTuple):
    """In the place of a request's, where all topics are asked for."""

    topic: str
    partitions: Sequence[int] = ()


@api(43, 0, 2)
async def elect_leaders(request: Request, broker: Broker) -> Any:
    asked, module = request.entity, response_module(request)
    kind = getattr(asked, "election_type", PREFERRED)
    known = kind in (PREFERRED, UNCLEAN)
    topics = asked.topic_partitions
    if topics is None:
        # All partitions: those that need no election are left out, which are all.
        topics = [_Topic(topic.name) for topic in broker.topics] if known else []

    def of_partition(topic: Any, index: int) -> Any:
        code, what = _outcome(broker, topic.topic, index, kind)
        return entity(module.PartitionResult, partition_id=index, error_code=code, error_message=what)

    def of_topic(topic: Any, partitions: Any) -> Any:
        return entity(module.ReplicaElectionResult, topic=topic.topic, partition_result=partitions)

    return respond(
        request,
        error_code=ErrorCode.none if known else ErrorCode.invalid_request,
        replica_election_results=await per_partition(topics, of_partition, of_topic),
    )


def _outcome(broker: Broker, name: str, index: int, kind: int) -> Outcome:
    topic = broker.topics.get(name)
    if kind not in (PREFERRED, UNCLEAN):
        return ErrorCode.invalid_request, f"Unknown election type {kind}"
    if topic is None:
        return ErrorCode.unknown_topic_or_partition, f"No such topic as {name}"
    if not 0 <= index < topic.partitions:
        return ErrorCode.unknown_topic_or_partition, f"No such partition as {name}-{index}"
    return ErrorCode.election_not_needed, "Leader election not needed for topic partition."


@api(45, 0, 1)
async def alter_partition_reassignments(request: Request, broker: Broker) -> Any:
    def outcome(topic: Any, partition: Any) -> tuple[ErrorCode, str | None]:
        try:
            _check_reassignment(broker, topic.name, partition.partition_index, partition.replicas)
        except BrokerError as error:
            return error.code, None if error.code is ErrorCode.no_reassignment_in_progress else error.what
        return ErrorCode.none, None

    return await _altered(request, ErrorCode.none, None, outcome)


async def _altered(
    request: Request, code: ErrorCode, what: str | None, outcome: Callable[[Any, Any], tuple[ErrorCode, str | None]]
) -> Any:
    asked, module = request.entity, response_module(request)

    def of_partition(topic: Any, partition: Any) -> Any:
        error, message = outcome(topic, partition)
        index = partition.partition_index
        return entity(
            module.ReassignablePartitionResponse, partition_index=index, error_code=error, error_message=message
        )

    def of_topic(topic: Any, partitions: Any) -> Any:
        return entity(module.ReassignableTopicResponse, name=topic.name, partitions=partitions)

    return respond(
        request,
        allow_replication_factor_change=getattr(asked, "allow_replication_factor_change", True),
        error_code=code,
        error_message=what,
        responses=await per_partition(asked.topics, of_partition, of_topic),
    )


def _check_reassignment(broker: Broker, name: str, index: int, replicas: Any) -> None:
    topic = broker.topics.get(name)
    if topic is None:
        raise BrokerError(ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {name}.")
    if not 0 <= index < topic.partitions:
        raise BrokerError(ErrorCode.unknown_topic_or_partition, f"Unable to find partition {name}:{index}.")
    if replicas is None:
        raise BrokerError(ErrorCode.no_reassignment_in_progress)
    check_assignment(broker, replicas)


@api(46, 0, 0)
async def list_partition_reassignments(request: Request, broker: Broker) -> Any:
    return respond(request)
