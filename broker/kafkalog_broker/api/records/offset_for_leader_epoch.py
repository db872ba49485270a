"""23 OffsetForLeaderEpoch, versions 2 to 4: the end offset of a leader epoch, from which clients detect truncation.

v3  replica ID of followers, without effect: this cluster has one node
v4  flexible
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.api.itemized_responses import respond_by_partition
from kafkalog_broker.broker import Broker
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.storage.partition.leader_epoch_lookup import check_leader_epoch, end_offset_for_epoch


@api(23, 2, 4)
async def offset_for_leader_epoch(request: Request, broker: Broker) -> Any:
    def end_of_epoch(topic: Any, partition: Any) -> dict[str, Any]:
        request.authorize(topic.topic)
        log = broker.log(topic.topic, partition.partition)
        check_leader_epoch(log, partition.current_leader_epoch)
        epoch, end = end_offset_for_epoch(log, partition.leader_epoch)
        return {"leader_epoch": epoch, "end_offset": end}

    return await respond_by_partition(request, end_of_epoch)
