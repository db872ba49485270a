"""28 TxnOffsetCommit, versions 0 to 5: commits a group's offsets as part of a transaction.

v2  leader epoch (KIP-320)
v3  member ID, generation and group.instance.id: a consumer that has lost its partitions is refused (KIP-447)
v4  TRANSACTION_ABORTABLE instead of INVALID_TXN_STATE for a group that was not added (KIP-890)
v5  the commit adds the group to the transaction
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkalog_broker.api.groups.committed_partitions import RequestedCommit, commit_response, requested_commit
from kafkalog_broker.broker import Broker
from kafkalog_broker.coordinator.coordinator_errors import coordinator_error_code
from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.offset_requests import CommitRequest
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.runtime.fair_scheduling import run_in_slices
from kafkalog_broker.transactions.transaction_metadata import TopicPartition
from kafkalog_broker.transactions.transaction_verification import (
    TXN_OFFSET_COMMIT_GENERIC_ERROR_VERSION,
    SupportedOperation,
)
from kafkalog_spark.format.names import OFFSETS_TOPIC

_FIRST_VERSION_WITH_LOAD_IN_PROGRESS = 2
"""Older clients could crash on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""


@api(28, 0, 5)
async def txn_offset_commit(request: Request, broker: Broker) -> Any:
    requested = requested_commit(request, broker, by_id=False)
    codes = await _commit(request, broker, requested) if requested.partitions else ()
    if request.version < _FIRST_VERSION_WITH_LOAD_IN_PROGRESS:
        loading, unavailable = ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available
        codes = [unavailable if code is loading else code for code in codes]
    return await commit_response(request, requested, codes)


async def _commit(request: Request, broker: Broker, requested: RequestedCommit) -> Sequence[ErrorCode]:
    body = request.entity
    producer = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
    commit = CommitRequest(
        group_id=body.group_id,
        partitions=requested.partitions,
        member_id=body.member_id,
        generation=body.generation_id,
        group_instance_id=body.group_instance_id,
        supports_group_id_not_found=False,
        producer=producer,
    )
    try:
        if not body.group_id:
            raise BrokerError(ErrorCode.invalid_group_id, "the group id is empty")
        prepared = await run_in_slices(broker.groups.prepare_commit(commit))
        while not _verify_transaction(request, broker, producer):
            await broker.transaction_ends.flush(body.transactional_id)
        # No await may come between the verification and the commit: the transaction could end meanwhile.
        return broker.groups.shard(body.group_id).commit(commit, prepared)
    except BrokerError as error:
        return [coordinator_error_code(error.code)] * len(requested.partitions)


def _verify_transaction(request: Request, broker: Broker, producer: ProducerIdAndEpoch) -> bool:
    """Check, as for Produce, that the transaction includes the group's partition of __consumer_offsets.

    The check is skipped if the transaction is already open in that partition, or if
    transaction.partition.verification.enable is false. Raises BrokerError.

    Returns:
        False if the coordinator's record must be flushed first. Verify again then.
    """
    body = request.entity
    if not broker.config.transaction_partition_verification_enable:
        return True
    partition = TopicPartition(OFFSETS_TOPIC, broker.groups.runtime.partition_for(body.group_id))
    if OFFSETS_TOPIC in broker.topics and broker.log(*partition).producer_state.has_open_transaction(*producer):
        return True
    operation = SupportedOperation.of(request.version, TXN_OFFSET_COMMIT_GENERIC_ERROR_VERSION)
    broker.transactions.verify(body.transactional_id, producer, partition, operation)
    return broker.transactions.unflushed(body.transactional_id) is None
