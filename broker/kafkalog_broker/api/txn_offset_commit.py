"""28 TxnOffsetCommit, versions 0 to 5: how far a group has read, to count when the transaction commits.

v2  leader epoch (KIP-320)
v3  member, generation, group.instance.id (KIP-447): a consumer that lost its partitions is refused
v4  TRANSACTION_ABORTABLE for a group that was not added; before, INVALID_TXN_STATE (KIP-890)
v5  the commit adds the group to the transaction
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.responses import per_partition
from kafkalog_broker.api.offset_commit import asked_offsets
from kafkalog_broker.broker import Broker
from kafkalog_broker.coordinator.runtime import write_error
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.messages import CommittedPartition, TransactionalCommit
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, respond, response_module
from kafkalog_broker.runtime.fair_scheduling import run_in_slices
from kafkalog_broker.transactions.transaction_coordinator import Speaks, verify
from kafkalog_broker.transactions.transaction_metadata import ProducerIdAndEpoch, TopicPartition
from kafkalog_spark.format.names import OFFSETS_TOPIC

_LOAD_IN_PROGRESS_FROM = 2
"""Before, clients could crash on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""


@api(28, 0, 5)
async def handle(request: Request, broker: Broker) -> Any:
    wanted, codes = asked_offsets(request, broker)
    committed = iter(await _commit(request, broker, tuple(wanted)) if wanted else [])
    results = iter([code or next(committed) for code in codes])
    module = response_module(request)

    def of_partition(topic: Any, part: Any) -> Any:
        code = next(results)
        if code is ErrorCode.coordinator_load_in_progress and request.version < _LOAD_IN_PROGRESS_FROM:
            code = ErrorCode.coordinator_not_available
        kind = module.TxnOffsetCommitResponsePartition
        return entity(kind, partition_index=part.partition_index, error_code=code)

    def of_topic(topic: Any, partitions: Any) -> Any:
        return entity(module.TxnOffsetCommitResponseTopic, name=topic.name, partitions=partitions)

    return respond(request, topics=await per_partition(request.entity.topics, of_partition, of_topic))


async def _commit(request: Request, broker: Broker, partitions: tuple[CommittedPartition, ...]) -> list[ErrorCode]:
    asked = request.entity
    commit = TransactionalCommit(
        group_id=asked.group_id,
        producer_id=asked.producer_id,
        producer_epoch=asked.producer_epoch,
        partitions=partitions,
        member_id=getattr(asked, "member_id", ""),
        generation=getattr(asked, "generation_id", -1),
        group_instance_id=getattr(asked, "group_instance_id", None),
    )
    try:
        if not asked.group_id:
            raise BrokerError(ErrorCode.invalid_group_id, "the group id is empty")
        prepared = await run_in_slices(broker.groups.prepare_commit(commit))
        _verify(request, broker)  # nothing may wait between this and the commit
        codes: list[ErrorCode] = broker.groups.commit_in_transaction(commit, prepared)
    except BrokerError as error:
        codes = [write_error(error.code)] * len(partitions)
    await broker.flush_offsets(asked.group_id)
    return codes


def _verify(request: Request, broker: Broker) -> None:
    """As for Produce: the first commit of a transaction in a partition of __consumer_offsets begins it there."""
    asked = request.entity
    producer = ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch)
    partition = TopicPartition(OFFSETS_TOPIC, broker.groups.partition_for(asked.group_id))
    if not broker.config.transaction_partition_verification_enable:
        return
    if OFFSETS_TOPIC in broker.topics and broker.log(*partition).producer_state.has_open_transaction(*producer):
        return
    speaks = Speaks.of_txn_offset_commit(request.version)
    verify(broker.transactions, asked.transactional_id, producer, partition, speaks)
