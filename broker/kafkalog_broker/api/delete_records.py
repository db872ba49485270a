"""21 DeleteRecords, versions 0 to 2: let partitions begin later. Offset -1: at the high watermark."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.responses import per_partition
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, respond, response_module
from kafkalog_spark.format.names import is_internal

NO_LOW_WATERMARK = -1


@api(21, 0, 2)
async def handle(request: Request, broker: Broker) -> Any:
    module = response_module(request)

    def of_partition(topic: Any, partition: Any) -> Any:
        code, low = ErrorCode.none, NO_LOW_WATERMARK
        try:
            if code := request.refused(topic.name):
                raise BrokerError(code)
            low = _delete(broker, topic.name, partition.partition_index, partition.offset)
        except BrokerError as error:
            code = error.code
        result = module.DeleteRecordsPartitionResult
        return entity(result, partition_index=partition.partition_index, low_watermark=low, error_code=code)

    def of_topic(topic: Any, partitions: Any) -> Any:
        return entity(module.DeleteRecordsTopicResult, name=topic.name, partitions=partitions)

    topics = await per_partition(request.entity.topics, of_partition, of_topic)
    return respond(request, topics=topics)


def _delete(broker: Broker, topic: str, partition: int, offset: int) -> int:
    if is_internal(topic):
        raise BrokerError(ErrorCode.invalid_topic_exception, f"Cannot delete records of internal topic {topic}")
    broker.check_not_mirrored(f"records of {topic} cannot be deleted")
    return broker.log(topic, partition).delete_records(offset)
