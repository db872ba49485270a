"""23 OffsetForLeaderEpoch, versions 2 to 4: where a leader epoch ended, so that clients notice a log that was cut.

v4 flexible. The replica id of followers (v3) is of no meaning on one node.
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.responses import per_partition
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, respond, response_module


@api(23, 2, 4)
async def handle(request: Request, broker: Broker) -> Any:
    module = response_module(request)

    def of_partition(topic: Any, asked: Any) -> Any:
        code, epoch, end = ErrorCode.none, -1, -1
        try:
            if code := request.refused(topic.topic):
                raise BrokerError(code)
            log = broker.log(topic.topic, asked.partition)
            log.check_leader_epoch(asked.current_leader_epoch)
            epoch, end = log.end_offset_for_epoch(asked.leader_epoch)
        except BrokerError as error:
            code = error.code
        found = {"error_code": code, "leader_epoch": epoch, "end_offset": end}
        return entity(module.EpochEndOffset, partition=asked.partition, **found)

    def of_topic(topic: Any, partitions: Any) -> Any:
        return entity(module.OffsetForLeaderTopicResult, topic=topic.topic, partitions=partitions)

    topics = await per_partition(request.entity.topics, of_partition, of_topic)
    return respond(request, topics=topics)
