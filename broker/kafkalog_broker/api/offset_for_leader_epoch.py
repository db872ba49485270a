"""23 OffsetForLeaderEpoch, versions 2 to 4: where a leader epoch ended, so that clients notice a truncated log.

v3  replica ID of followers, without effect: this cluster has one node
v4  flexible
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.api.itemized_responses import respond_by_partition
from kafkalog_broker.broker import Broker
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request


@api(23, 2, 4)
async def handle(request: Request, broker: Broker) -> Any:
    def end_of_epoch(topic: Any, partition: Any) -> dict[str, Any]:
        request.authorize(topic.topic)
        log = broker.log(topic.topic, partition.partition)
        log.check_leader_epoch(partition.current_leader_epoch)
        epoch, end = log.end_offset_for_epoch(partition.leader_epoch)
        return {"leader_epoch": epoch, "end_offset": end}

    return await respond_by_partition(request, end_of_epoch)
