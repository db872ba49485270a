"""8 OffsetCommit, versions 0 to 10: stores the offsets at which a group continues to read.

A partition that does not exist gets an error; the others are committed, in one batch of __consumer_offsets. The topic
ID is stored with each offset, so that an offset does not outlive its topic.

v0    was stored in ZooKeeper by old brokers; here it is stored like the commit of a consumer without a group
v1    generation and member ID; each offset may have the timestamp of its commit
v2-4  may have a retention time, which is stored with the offset, as in Kafka
v6    leader epoch (KIP-320)
v7    group.instance.id (KIP-345)
v9    an unknown group is GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION
v10   topics by ID: UNKNOWN_TOPIC_ID
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from kafkalog_broker.api.groups.committed_partitions import RequestedCommit, commit_response, requested_commit
from kafkalog_broker.broker import Broker
from kafkalog_broker.coordinator.coordinator_errors import coordinator_error_code
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.offset_requests import CommitRequest
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.runtime.fair_scheduling import run_in_slices

_FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND = 9
_FIRST_VERSION_WITH_TOPIC_IDS = 10
_MS = timedelta(milliseconds=1)


@api(8, 0, 10)
async def offset_commit(request: Request, broker: Broker) -> Any:
    requested = requested_commit(request, broker, by_id=request.version >= _FIRST_VERSION_WITH_TOPIC_IDS)
    codes = await _commit(request, broker, requested) if requested.partitions else ()
    return await commit_response(request, requested, codes)


async def _commit(request: Request, broker: Broker, requested: RequestedCommit) -> Sequence[ErrorCode]:
    body = request.entity
    commit = CommitRequest(
        group_id=body.group_id,
        partitions=requested.partitions,
        member_id=body.member_id,
        generation=body.generation_id_or_member_epoch,
        group_instance_id=body.group_instance_id,
        retention_ms=body.retention_time // _MS,
        supports_group_id_not_found=request.version >= _FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND,
    )
    try:
        prepared = await run_in_slices(broker.groups.prepare_commit(commit))
        return broker.groups.shard(body.group_id).commit(commit, prepared)
    except BrokerError as error:
        return [coordinator_error_code(error.code)] * len(requested.partitions)
