"""21 DeleteRecords, versions 0 to 2: raises the log start offset of partitions.

Offset -1 stands for the high watermark.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafkalog_broker.api.itemized_responses import respond_by_partition
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.storage.partition.log import Log
from kafkalog_spark.format.names import is_internal

_NO_LOW_WATERMARK = -1


@api(21, 0, 2)
async def delete_records(request: Request, broker: Broker) -> Any:
    changed_logs: list[Log] = []

    def result(topic: Any, partition: Any) -> dict[str, Any]:
        try:
            request.authorize(topic.name)
            log = _deletable_log(broker, topic.name, partition.partition_index)
            low_watermark = log.delete_records(partition.offset)
            changed_logs.append(log)
            return {"low_watermark": low_watermark}
        except BrokerError as error:
            return {"low_watermark": _NO_LOW_WATERMARK, "error_code": error.code}

    response = await respond_by_partition(request, result)
    # After a crash, the leader epochs of a tiered log tell where it starts, so they must be on disk.
    unflushed = [log for log in changed_logs if not log.epochs.is_flushed]
    if unflushed:
        await broker.run_blocking(_flush_epochs, unflushed)
    return response


def _deletable_log(broker: Broker, topic: str, partition: int) -> Log:
    """Return the log of a partition whose records clients may delete. Raises BrokerError."""
    if is_internal(topic):
        raise BrokerError(ErrorCode.invalid_topic_exception, f"Cannot delete records of internal topic {topic}")
    broker.check_not_mirrored(f"records of {topic} cannot be deleted")
    return broker.log(topic, partition)


def _flush_epochs(logs: Iterable[Log]) -> None:
    for log in logs:
        log.flush_epochs()
