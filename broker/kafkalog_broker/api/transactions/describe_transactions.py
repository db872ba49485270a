"""65 DescribeTransactions, version 0: the state of transactional IDs (KIP-664)."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response, build_struct, response_structs
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.transactions.transaction_metadata import TransactionMetadata


@api(65, 0, 0)
async def describe_transactions(request: Request, broker: Broker) -> Any:
    states = []
    state_struct = response_structs(request).TransactionState
    async for transactional_id in TimeSlice().spread(request.entity.transactional_ids):
        fields: dict[str, Any] = {"transactional_id": transactional_id}
        try:
            request.authorize(transactional_id)
            fields |= _state_fields(broker.transactions.describe(transactional_id), request)
        except BrokerError as error:
            # As in Kafka, the start time is 0, not the -1 of a transaction that has not begun.
            fields |= {"error_code": error.code, "transaction_start_time": 0, "producer_id": 0, "producer_epoch": 0}
        states.append(build_struct(state_struct, **fields))
    return build_response(request, transaction_states=states)


def _state_fields(metadata: TransactionMetadata, request: Request) -> dict[str, Any]:
    """Return the fields of a transaction, with only those topics that the sender may describe."""
    by_topic = groupby(sorted(metadata.partitions), lambda partition: partition.topic)
    topics = [
        {"topic": name, "partitions": [partition.partition for partition in partitions]}
        for name, partitions in by_topic
        if request.may(Operation.DESCRIBE, ResourceType.TOPIC, name)
    ]
    return {
        "transaction_state": metadata.state.label, "transaction_timeout": metadata.timeout_ms,
        "transaction_start_time": metadata.start_ms, "producer_id": metadata.producer_id,
        "producer_epoch": metadata.producer_epoch, "topics": topics,
    }  # fmt: skip
