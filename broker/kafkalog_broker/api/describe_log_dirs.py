"""35 DescribeLogDirs, versions 1 to 5. v3: error of the whole; v4: bytes of the file system (KIP-827); v5: cordoned."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, respond, response_module
from kafkalog_broker.storage.log_directory import LogDirUsage, PartitionUsage


@api(35, 1, 5)
async def handle(request: Request, broker: Broker) -> Any:
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
