"""35 DescribeLogDirs, versions 1 to 5: log directories, their file systems and the sizes of their partitions.

v3  an error of the whole request
v4  bytes of the file system (KIP-827)
v5  cordoned directories
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response
from kafkalog_broker.storage.log_dir_usage import read_log_dir_usages


@api(35, 1, 5)
def describe_log_dirs(request: Request, broker: Broker) -> Any:
    topics = request.entity.topics
    requested = None if topics is None else {(topic.topic, index) for topic in topics for index in topic.partitions}
    results = []
    for log_dir, total_bytes, usable_bytes, sizes in read_log_dir_usages(broker.logs):
        partitions: dict[str, list[dict[str, int]]] = {}
        for (topic, partition), size in sizes.items():
            if requested is None or (topic, partition) in requested:
                partitions.setdefault(topic, []).append({"partition_index": partition, "partition_size": size})
        results.append({
            "error_code": ErrorCode.none if log_dir.is_online else ErrorCode.kafka_storage_error,
            "log_dir": str(log_dir.path.absolute()),
            "topics": [{"name": name, "partitions": some} for name, some in partitions.items()],
            "total_bytes": total_bytes, "usable_bytes": usable_bytes,
            "is_cordoned": str(log_dir.path) in broker.config.cordoned_log_dirs,
        })  # fmt: skip
    return build_response(request, results=results)
