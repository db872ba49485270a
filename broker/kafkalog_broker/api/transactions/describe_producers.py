"""61 DescribeProducers, version 0: the idempotent and transactional producers that partitions know (KIP-664).

A partition that is named more than once is described once.
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.api.error_messages import UNKNOWN_TOPIC_OR_PARTITION
from kafkalog_broker.api.transactions.distinct_partitions import distinct_partitions
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import DENIAL_MESSAGES
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response, build_struct, response_structs
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.topic import check_topic_name
from kafkalog_spark.format.producer_snapshot import ProducerEntry

MAX_PRODUCERS = 100_000
"""After this many producers, which take about 400 bytes each while the response is made, the remaining partitions are
refused with POLICY_VIOLATION. The client must ask for fewer partitions."""


@api(61, 0, 0)
async def describe_producers(request: Request, broker: Broker) -> Any:
    time_slice = TimeSlice()
    producer_struct = response_structs(request).ProducerState
    topics = []
    described = 0
    for name, indexes in distinct_partitions(request.entity.topics).items():
        partitions = []
        async for index in time_slice.spread(indexes):
            code, message = ErrorCode.none, None
            producers: list[Any] = []
            try:
                log = _authorized_log(request, broker, name, index)
                if described > MAX_PRODUCERS:
                    message = (
                        f"The response has more than {MAX_PRODUCERS} producers: describe fewer partitions in a request."
                    )
                    raise BrokerError(ErrorCode.policy_violation, message)
                # There may be 100,000 producers, so their structs are made in time slices.
                producers = [
                    _producer(producer_struct, producer.entry())
                    async for producer in time_slice.spread(log.producer_state.producers())
                ]
                described += len(producers)
            except BrokerError as error:
                code = error.code
                # Kafka has no message for a missing partition of an existing topic.
                message = error.what if code in DENIAL_MESSAGES or name not in broker.topics else None
            partitions.append({
                "partition_index": index, "error_code": code, "error_message": message,
                "active_producers": tuple(producers),
            })  # fmt: skip
        topics.append({"name": name, "partitions": partitions})
    return build_response(request, topics=topics)


def _authorized_log(request: Request, broker: Broker, topic: str, partition: int) -> Log:
    """Return the log of a partition that the sender may read. Raises BrokerError."""
    if topic not in broker.topics:
        check_topic_name(topic)
    if denial := request.authorization_error(topic):
        raise BrokerError(denial, DENIAL_MESSAGES[denial])
    if topic not in broker.topics:
        raise BrokerError(ErrorCode.unknown_topic_or_partition, UNKNOWN_TOPIC_OR_PARTITION)
    return broker.log(topic, partition)


def _producer(struct: Any, entry: ProducerEntry) -> Any:
    return build_struct(
        struct, producer_id=entry.producer_id, producer_epoch=entry.producer_epoch, last_sequence=entry.last_sequence,
        last_timestamp=entry.timestamp, coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.transaction_first_offset,
    )  # fmt: skip
