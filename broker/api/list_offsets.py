"""2 ListOffsets, versions 1 to 11: the offset for a timestamp, or for one of the special ones.

-1 latest               high watermark; the LSO with read_committed
-2 earliest             log start offset
-3 max timestamp        v7 (KIP-734)
-4 earliest local       v8: the log start offset, nothing lies elsewhere
-5 latest tiered        v9: none
-6 earliest pending     v11: none, nothing waits to be uploaded
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.errors import BrokerError, ErrorCode
from broker.protocol.api_registry import Request, api
from broker.protocol.response_entity import entity, response_module

if TYPE_CHECKING:
    from broker.server import Broker
    from broker.storage.log import Log

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
_FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_READ_COMMITTED = 1
_NONE = (-1, -1, -1)  # timestamp, offset, leader epoch


@api(2, 1, 11)
async def handle(request: Request, broker: Broker) -> Any:
    asked = request.entity
    module = response_module(request)
    committed = getattr(asked, "isolation_level", 0) == _READ_COMMITTED
    topics = []
    for topic in asked.topics:
        seen = [partition.partition_index for partition in topic.partitions]
        partitions = []
        for partition in topic.partitions:
            try:
                if seen.count(partition.partition_index) > 1:
                    raise BrokerError(ErrorCode.invalid_request, "the partition is asked for more than once")
                log = broker.log(topic.name, partition.partition_index)
                log.check_leader_epoch(getattr(partition, "current_leader_epoch", -1))
                code, found = ErrorCode.none, look_up(log, partition.timestamp, request.version, committed=committed)
            except BrokerError as error:
                code, found = error.code, _NONE
            timestamp, offset, epoch = found
            partitions.append(
                entity(
                    module.ListOffsetsPartitionResponse,
                    partition_index=partition.partition_index,
                    error_code=code,
                    timestamp=timestamp,
                    offset=offset,
                    leader_epoch=epoch,
                )
            )
        topics.append(entity(module.ListOffsetsTopicResponse, name=topic.name, partitions=tuple(partitions)))
    return entity(module.ListOffsetsResponse, topics=tuple(topics))


def look_up(log: Log, timestamp: int, version: int, *, committed: bool) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch) that answer `timestamp`; -1 stands for none. Raises UNSUPPORTED_VERSION."""
    if timestamp < EARLIEST_PENDING_UPLOAD or version < _FIRST_VERSION.get(timestamp, 0):
        raise BrokerError(ErrorCode.unsupported_version, f"timestamp {timestamp} is not known to version {version}")
    end = log.last_stable_offset if committed else log.high_watermark
    if timestamp == LATEST:
        return -1, end, log.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.log_start_offset, log.epoch_of(log.log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NONE
    found = log.max_timestamp_offset() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    return found if found is not None and found[1] < end else _NONE
