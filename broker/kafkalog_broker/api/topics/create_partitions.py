"""37 CreatePartitions, versions 0 to 3: adds partitions to topics, MAX_PARTITIONS_PER_REQUEST together."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kafkalog_broker.admin.partition_addition import add_partitions
from kafkalog_broker.admin.topic_validation import MAX_PARTITIONS_PER_REQUEST, validate_new_partition_count
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response
from kafkalog_broker.storage.topic_registry import Outcome

_ERRORS_WITHOUT_MESSAGE = (ErrorCode.unknown_topic_or_partition, ErrorCode.topic_authorization_failed)
"""Kafka sends no message with these errors."""


@api(37, 0, 3)
async def create_partitions(request: Request, broker: Broker) -> Any:
    body = request.entity
    occurrences = Counter(topic.name for topic in body.topics)
    outcomes: dict[str, Outcome] = {}
    totals: dict[str, int] = {}
    remaining = MAX_PARTITIONS_PER_REQUEST
    for topic in body.topics:
        name = topic.name
        try:
            if occurrences[name] > 1:
                raise BrokerError(ErrorCode.invalid_request, "Duplicate topic name.")
            request.authorize(name)
            assignments = (
                None if topic.assignments is None else [assignment.broker_ids for assignment in topic.assignments]
            )
            existing_topic = validate_new_partition_count(broker, name, topic.count, assignments, remaining)
            remaining -= topic.count - existing_topic.partitions
            totals[name] = topic.count
            outcomes[name] = existing_topic
        except BrokerError as error:
            outcomes[name] = error
    if totals and not body.validate_only:
        outcomes.update(zip(totals, await add_partitions(broker, totals, request.charge), strict=True))
    results = []
    for name, outcome in outcomes.items():
        code, message = ErrorCode.none, None
        if isinstance(outcome, BrokerError):
            code = outcome.code
            message = None if code in _ERRORS_WITHOUT_MESSAGE else outcome.what
        results.append({"name": name, "error_code": code, "error_message": message})
    return build_response(request, results=results)
