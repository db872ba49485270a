"""61 DescribeProducers, version 0: what partitions know of their idempotent and transactional producers (KIP-664)."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import TEXTS
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, respond, response_module
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.storage.topic_registry import check_topic_name

MAX_PRODUCERS = 100_000
"""After so many, each of about 400 bytes while the answer is put together, the partitions left in a request are refused
with POLICY_VIOLATION: the client asks for fewer of them."""
NO_SUCH_TOPIC = "This server does not host this topic-partition."


@api(61, 0, 0)
async def handle(request: Request, broker: Broker) -> Any:
    """A partition that is named more than once is answered once."""
    module, turn = response_module(request), TimeSlice()
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.entity.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    topics = []
    listed = 0
    for name, indexes in wanted.items():
        partitions = []
        async for index in turn.spread(indexes):
            code, what = ErrorCode.none, None
            producers: list[Any] = []
            try:
                check_topic_name(name)
                if refused := request.refused(name):
                    raise BrokerError(refused, TEXTS[refused])
                if name not in broker.topics:
                    raise BrokerError(ErrorCode.unknown_topic_or_partition, NO_SUCH_TOPIC)
                if listed > MAX_PRODUCERS:
                    raise BrokerError(ErrorCode.policy_violation, "too many producers for one answer")
                async for known in turn.spread(broker.log(name, index).producer_state.producers()):
                    producers.append(_producer(module, known))
                listed += len(producers)
            except BrokerError as error:
                # Kafka has no text for a partition that a known topic does not have.
                code, what = error.code, error.what if error.code in TEXTS or name not in broker.topics else None
            partitions.append(
                entity(
                    module.PartitionResponse,
                    partition_index=index,
                    error_code=code,
                    error_message=what,
                    active_producers=tuple(producers),
                )
            )
        topics.append(entity(module.TopicResponse, name=name, partitions=tuple(partitions)))
    return respond(request, topics=tuple(topics))


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
