"""25 AddOffsetsToTxn, versions 0 to 4: adds a group's partition of __consumer_offsets to a transaction.

v2  PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)
v4  TRANSACTION_ABORTABLE (KIP-890)
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response
from kafkalog_broker.transactions.transaction_metadata import CLASSIC, TopicPartition
from kafkalog_spark.format.names import OFFSETS_TOPIC


@api(25, 0, 4)
def add_offsets_to_txn(request: Request, broker: Broker) -> Any:
    body = request.entity
    partition = TopicPartition(OFFSETS_TOPIC, broker.groups.runtime.partition_for(body.group_id))
    producer = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
    broker.transactions.add_partitions(body.transactional_id, producer, frozenset({partition}), CLASSIC)
    return build_response(request)
