"""79 ShareAcknowledge, versions 1 and 2: what became of records that a member has acquired (KIP-932).

v2  renewing locks (KIP-1222), acquisition lock timeout in the answer
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kafkalog_broker.admin.share_groups import acknowledge_all, check_member_id
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, respond, response_module
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.share.fetching.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, SessionKey
from kafkalog_broker.share.state.state_records import NO_TOPIC


@api(79, 1, 2)
async def handle(request: Request, broker: Broker) -> Any:
    asked, module = request.entity, response_module(request)
    epoch, turn = asked.share_session_epoch, TimeSlice()
    if asked.group_id is None:
        raise BrokerError(ErrorCode.invalid_request, "Invalid group id in the request.")
    check_member_id(asked.member_id)
    key = SessionKey(asked.group_id, asked.member_id)
    sessions = broker.deliveries.sessions
    if epoch == INITIAL_EPOCH:
        raise BrokerError(ErrorCode.invalid_share_session_epoch)
    if epoch == FINAL_EPOCH:
        sessions.get(key)
    else:
        sessions.next_request(key, epoch)
    said = await acknowledge_all(request, broker, turn)
    if epoch == FINAL_EPOCH:
        broker.deliveries.end_session(key)
    topics = []
    for topic in asked.topics:
        partitions = tuple(
            entity(
                module.PartitionData, partition_index=partition.partition_index,
                error_code=said[topic.topic_id or NO_TOPIC, partition.partition_index].error,
                error_message=said[topic.topic_id or NO_TOPIC, partition.partition_index].message,
            )
            for partition in topic.partitions
        )  # fmt: skip
        topics.append(entity(module.ShareAcknowledgeTopicResponse, topic_id=topic.topic_id, partitions=partitions))
    lock_ms = broker.deliveries.settings_of(asked.group_id).limits.lock_ms
    return respond(request, responses=tuple(topics), acquisition_lock_timeout=timedelta(milliseconds=lock_ms))
