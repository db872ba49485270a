"""61 DescribeProducers, version 0: what partitions know of their idempotent and transactional producers (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.errors import BrokerError, ErrorCode
from broker.protocol.api_registry import Request, api
from broker.protocol.response_entity import entity, response_module
from broker.storage.topic_registry import check_topic_name

NO_SUCH_TOPIC = "This server does not host this topic-partition."

if TYPE_CHECKING:
    from broker.server import Broker


@api(61, 0, 0)
async def handle(request: Request, broker: Broker) -> Any:
    module = response_module(request)
    topics = []
    for topic in request.entity.topics:
        partitions = []
        for index in topic.partition_indexes:
            code, what, producers = ErrorCode.none, None, ()
            try:
                check_topic_name(topic.name)
                if topic.name not in broker.topics:
                    raise BrokerError(ErrorCode.unknown_topic_or_partition, NO_SUCH_TOPIC)
                producers = tuple(_producer(module, known) for known in broker.log(topic.name, index).producers())
            except BrokerError as error:
                # Kafka has no text for a partition that a known topic does not have.
                code, what = error.code, error.what if topic.name not in broker.topics else None
            partitions.append(
                entity(
                    module.PartitionResponse,
                    partition_index=index,
                    error_code=code,
                    error_message=what,
                    active_producers=producers,
                )
            )
        topics.append(entity(module.TopicResponse, name=topic.name, partitions=tuple(partitions)))
    return entity(module.DescribeProducersResponse, topics=tuple(topics))


def _producer(module: Any, producer: Any) -> Any:
    known = producer.entry()
    return entity(
        module.ProducerState,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        last_sequence=known.last_sequence,
        last_timestamp=known.timestamp,
        coordinator_epoch=known.coordinator_epoch,
        current_txn_start_offset=known.transaction_first_offset,
    )
