"""37 CreatePartitions, versions 0 to 3: more partitions for topics that exist.

All topics of a request together may be given MAX_PARTITIONS_PER_REQUEST; those after are refused.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kafkalog_broker.admin.topic_changes import add_partitions
from kafkalog_broker.admin.topic_checks import MAX_PARTITIONS_PER_REQUEST, check_more_partitions
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, respond, response_module
from kafkalog_broker.storage.topic_registry import Outcome

_WITHOUT_TEXT = (ErrorCode.unknown_topic_or_partition, ErrorCode.topic_authorization_failed)


@api(37, 0, 3)
async def handle(request: Request, broker: Broker) -> Any:
    asked = request.entity
    times = Counter(topic.name for topic in asked.topics)
    outcomes: dict[str, Outcome] = {}
    totals: dict[str, int] = {}
    left = MAX_PARTITIONS_PER_REQUEST
    for topic in asked.topics:
        name = topic.name
        try:
            if times[name] > 1:
                raise BrokerError(ErrorCode.invalid_request, "Duplicate topic name.")
            if refused := request.refused(name):
                raise BrokerError(refused)
            nodes = None if topic.assignments is None else [assigned.broker_ids for assigned in topic.assignments]
            known = check_more_partitions(broker, name, topic.count, nodes, left)
            left -= topic.count - known.partitions
            totals[name] = topic.count
            outcomes[name] = known
        except BrokerError as error:
            outcomes[name] = error
    if totals and not asked.validate_only:
        outcomes.update(zip(totals, await add_partitions(broker, totals, request.charge), strict=True))
    module = response_module(request)
    results = []
    for name, outcome in outcomes.items():
        code, what = ErrorCode.none, None
        if isinstance(outcome, BrokerError):
            code = outcome.code
            what = None if code in _WITHOUT_TEXT else outcome.what
        results.append(entity(module.CreatePartitionsTopicResult, name=name, error_code=code, error_message=what))
    return respond(request, results=tuple(results))
