"""23 OffsetForLeaderEpoch, versions 2 to 4: where a leader epoch ended, so that clients notice a log that was cut.

v4 flexible. The replica id of followers (v3) is of no meaning on one node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, response_module
from kafkalog_broker.turn import Turn

if TYPE_CHECKING:
    from kafkalog_broker.broker import Broker


@api(23, 2, 4)
async def handle(request: Request, broker: Broker) -> Any:
    module, turn = response_module(request), Turn()
    topics = []
    for topic in request.entity.topics:
        partitions = []
        for partition in topic.partitions:
            if turn.over:
                await turn.next()
            code, epoch, end = ErrorCode.none, -1, -1
            try:
                log = broker.log(topic.topic, partition.partition)
                log.reader.check_leader_epoch(partition.current_leader_epoch)
                epoch, end = log.reader.end_offset_for_epoch(partition.leader_epoch)
            except BrokerError as error:
                code = error.code
            partitions.append(
                entity(
                    module.EpochEndOffset,
                    error_code=code,
                    partition=partition.partition,
                    leader_epoch=epoch,
                    end_offset=end,
                )
            )
        topics.append(entity(module.OffsetForLeaderTopicResult, topic=topic.topic, partitions=tuple(partitions)))
    return entity(module.OffsetForLeaderEpochResponse, topics=tuple(topics))
