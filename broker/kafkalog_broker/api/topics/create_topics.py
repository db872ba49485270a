"""19 CreateTopics, versions 2 to 7.

v4  -1 for the broker's default number of partitions and replicas
v5  the topic's configuration in the response
v7  topic IDs in the response

A topic that is named twice is refused, once, at the end of the response.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Hashable
from typing import Any

from kafkalog_broker.admin import topic_creation
from kafkalog_broker.admin.config_entries import topic_entries
from kafkalog_broker.admin.topic_validation import NewTopic, PartitionAssignment, validate_total_partitions
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_messages import array_writer
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response, response_structs
from kafkalog_broker.runtime.log_rate import LogRate
from kafkalog_broker.storage.topic import Topic
from kafkalog_spark.format.names import CLUSTER_METADATA_TOPIC

_refusal_log = LogRate(logging.getLogger(__name__))
_FIRST_VERSION_WITH_CONFIGS = 5


@api(19, 2, 7)
async def create_topics(request: Request, broker: Broker) -> Any:
    body = request.entity
    requested = [_new_topic(topic) for topic in body.topics]
    validate_total_partitions(broker, requested)
    occurrences = Counter(topic.name for topic in requested)
    new_topics: list[NewTopic] = []
    refused: list[dict[str, Any]] = []
    for topic in requested:
        if occurrences[topic.name] > 1:
            continue
        if topic.name == CLUSTER_METADATA_TOPIC:
            message = f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
            refused.append(_error_result(topic.name, ErrorCode.invalid_request, message))
        elif code := request.authorization_error(topic.name):
            refused.append(_error_result(topic.name, code, "Authorization failed."))
        else:
            new_topics.append(topic)
    outcomes = await topic_creation.create_topics(broker, new_topics, request.charge, validate_only=body.validate_only)
    results = []
    encoded_configs: dict[Hashable, bytes] = {}
    for new, outcome in zip(new_topics, outcomes, strict=True):
        if isinstance(outcome, Topic):
            results.append(_topic_result(request, broker, outcome, encoded_configs))
        else:
            code_name = outcome.code.name
            _refusal_log.log(logging.INFO, "topic %.200r is not created: %s: %.300s", new.name, code_name, outcome)
            results.append(_error_result(new.name, outcome.code, outcome.what))
    duplicates = [name for name, count in occurrences.items() if count > 1]
    refused += [_error_result(name, ErrorCode.invalid_request, "Duplicate topic name.") for name in duplicates]
    return build_response(request, topics=[*results, *refused])


def _new_topic(topic: Any) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [PartitionAssignment(assigned.partition_index, assigned.broker_ids) for assigned in topic.assignments],
        {config.name: config.value for config in topic.configs},
    )


def _error_result(name: str, code: ErrorCode, message: str) -> dict[str, Any]:
    return {"name": name, "error_code": code, "error_message": message}


def _topic_result(
    request: Request, broker: Broker, topic: Topic, encoded_configs: dict[Hashable, bytes]
) -> dict[str, Any]:
    """Return the result for a created topic.

    `encoded_configs` caches encoded configurations by overrides, so that topics with equal overrides share one.
    """
    fields = {"name": topic.name, "topic_id": topic.id, "error_message": None}
    if not request.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name, quiet=True):
        return {**fields, "topic_config_error_code": int(ErrorCode.topic_authorization_failed)}
    overrides = tuple(topic.configs.items())
    if overrides not in encoded_configs and request.version >= _FIRST_VERSION_WITH_CONFIGS:
        write = array_writer(response_structs(request).CreatableTopicResult, "configs")
        # Overrides are shown as the request wrote them. Only DescribeConfigs shows parsed values.
        entries = [
            entry._replace(value=topic.configs.get(entry.name, entry.value))
            for entry in topic_entries(broker, topic.configs)
        ]
        encoded_configs[overrides] = b"".join(write(entries, bytearray()))
    return {
        **fields, "num_partitions": topic.partitions, "replication_factor": 1,
        "configs": encoded_configs.get(overrides, ()),
    }  # fmt: skip
