"""Topics, made, enlarged and deleted; records deleted.

19 CreateTopics, versions 2 to 7. v4: -1 for the broker's defaults; v5: configuration in the answer; v7: topic ids.
Topics named twice are refused, each once, and come last.

37 CreatePartitions, versions 0 to 3: more partitions for topics that exist, MAX_PARTITIONS_PER_REQUEST in all.
20 DeleteTopics, versions 1 to 6. v5: error messages; v6: by topic id.
21 DeleteRecords, versions 0 to 2: let partitions begin later. Offset -1: at the high watermark.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Generator, Iterable
from itertools import starmap
from typing import Any
from uuid import UUID

from kafkalog_broker.admin import topic_changes
from kafkalog_broker.admin.config_listing import topic_entries
from kafkalog_broker.admin.responses import respond_by_partition, respond_in_slices
from kafkalog_broker.admin.topic_changes import NewTopic, check_more_partitions, check_totals
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import CLUSTER_NAME, TEXTS, Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.entity_codec import array_writer
from kafkalog_broker.protocol.response_entity import respond, response_module
from kafkalog_broker.runtime.fair_scheduling import TimeSlice, run_in_slices
from kafkalog_broker.runtime.process import LogRate
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.topic import Topic
from kafkalog_broker.storage.topic_registry import Outcome
from kafkalog_spark.format.names import CLUSTER_METADATA_TOPIC, is_internal

_refused = LogRate(logging.getLogger(__name__))
_CONFIGS_FROM = 5


@api(19, 2, 7)
async def create_topics(request: Request, broker: Broker) -> Any:
    asked = request.entity
    times = Counter(topic.name for topic in asked.topics)
    check_totals(broker, ((topic.num_partitions, len(topic.assignments)) for topic in asked.topics))
    wanted, refused = [], {}
    for topic in asked.topics:
        if times[topic.name] > 1:
            continue
        if topic.name == CLUSTER_METADATA_TOPIC:
            why = f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
            refused[topic.name] = (ErrorCode.invalid_request, why)
            continue
        if code := request.refused(topic.name):
            refused[topic.name] = (code, "Authorization failed.")
            continue
        assignments = [(assigned.partition_index, assigned.broker_ids) for assigned in topic.assignments]
        configs = {config.name: config.value for config in topic.configs}
        wanted.append(NewTopic(topic.name, topic.num_partitions, topic.replication_factor, assignments, configs))
    validate_only = asked.validate_only
    outcomes = await topic_changes.create_topics(broker, wanted, request.charge, validate_only=validate_only)
    results = []
    encoded: dict[Any, bytes] = {}
    for new, outcome in zip(wanted, outcomes, strict=True):
        if isinstance(outcome, Topic):
            results.append(_created(request, broker, outcome, encoded))
        else:
            _refused.log(logging.INFO, "topic %.200r is not created: %s: %.300s", new.name, outcome.code.name, outcome)
            results.append(_refusal(new.name, outcome.code, outcome.what))
    results += [_refusal(name, code, why) for name, (code, why) in refused.items()]
    twice = [name for name, number in times.items() if number > 1]
    results += [_refusal(name, ErrorCode.invalid_request, "Duplicate topic name.") for name in twice]
    return respond(request, topics=results)


def _refusal(name: str, code: ErrorCode, what: str | None) -> dict[str, Any]:
    return {"name": name, "error_code": code, "error_message": what}


def _created(request: Request, broker: Broker, topic: Topic, encoded: dict[Any, bytes]) -> dict[str, Any]:
    """encoded: configurations, each written once however many topics share it."""
    facts = {"name": topic.name, "topic_id": topic.id, "error_message": None}
    if not request.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name, quiet=True):
        return {**facts, "topic_config_error_code": int(ErrorCode.topic_authorization_failed)}
    result, key = response_module(request).CreatableTopicResult, tuple(topic.configs.items())
    if key not in encoded and request.version >= _CONFIGS_FROM:
        write = array_writer(result, "configs")
        # Texts as the request had them: only DescribeConfigs shows parsed values.
        entries = [
            entry._replace(value=topic.configs.get(entry.name, entry.value))
            for entry in topic_entries(broker, topic.configs)
        ]
        encoded[key] = b"".join(write(entries, bytearray()))
    return {
        **facts, "num_partitions": topic.partitions, "replication_factor": 1, "configs": encoded.get(key, ()),
    }  # fmt: skip


_WITHOUT_TEXT = (ErrorCode.unknown_topic_or_partition, ErrorCode.topic_authorization_failed)


@api(37, 0, 3)
async def create_partitions(request: Request, broker: Broker) -> Any:
    asked = request.entity
    times = Counter(topic.name for topic in asked.topics)
    outcomes: dict[str, Outcome] = {}
    totals: dict[str, int] = {}
    left = topic_changes.MAX_PARTITIONS_PER_REQUEST
    for topic in asked.topics:
        name = topic.name
        try:
            if times[name] > 1:
                raise BrokerError(ErrorCode.invalid_request, "Duplicate topic name.")
            request.check(name)
            nodes = None if topic.assignments is None else [assigned.broker_ids for assigned in topic.assignments]
            known = check_more_partitions(broker, name, topic.count, nodes, left)
            left -= topic.count - known.partitions
            totals[name] = topic.count
            outcomes[name] = known
        except BrokerError as error:
            outcomes[name] = error
    if totals and not asked.validate_only:
        outcomes.update(zip(totals, await topic_changes.add_partitions(broker, totals, request.charge), strict=True))
    results = []
    for name, outcome in outcomes.items():
        code, what = ErrorCode.none, None
        if isinstance(outcome, BrokerError):
            code = outcome.code
            what = None if code in _WITHOUT_TEXT else outcome.what
        results.append({"name": name, "error_code": code, "error_message": what})
    return respond(request, results=results)


NO_SUCH_TOPIC = "This server does not host this topic-partition."
NO_SUCH_ID = "This server does not host this topic ID."
Wanted = tuple[str | None, UUID | None]
Resolved = tuple[str | None, UUID | None, BrokerError | None]


@api(20, 1, 6)
async def delete_topics(request: Request, broker: Broker) -> Any:
    wanted: list[Wanted] = (
        [(topic.name, topic.topic_id) for topic in request.entity.topics]
        if request.version >= 6
        else [(name, None) for name in request.entity.topic_names]
    )
    turn = TimeSlice()
    resolved = await run_in_slices(_resolved(request, broker, wanted), turn)
    if request.access is not None:
        resolved = [_permitted(request, broker, one) async for one in turn.spread(resolved)]
    names = [name for name, _, refused in resolved if name is not None and refused is None]
    gone = (
        dict(zip(names, await topic_changes.delete_topics(broker, names, request.charge), strict=True)) if names else {}
    )

    def answer(name: str | None, topic_id: UUID | None, refused: BrokerError | None) -> dict[str, Any]:
        code, what, outcome = ErrorCode.none, None, refused or gone[name or ""]
        if isinstance(outcome, Topic):
            topic_id = outcome.id
        else:
            code, what = outcome.code, outcome.what
            if code is ErrorCode.unknown_topic_or_partition:
                what = NO_SUCH_TOPIC
            if refused is None and code is not ErrorCode.throttling_quota_exceeded:
                topic_id = None
        return {"name": name, "topic_id": topic_id, "error_code": code, "error_message": what}

    return await respond_in_slices(request, "responses", starmap(answer, resolved))


def _may_describe(request: Request, name: str) -> bool:
    if request.may(Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True):
        return True
    return request.may(Operation.DESCRIBE, ResourceType.TOPIC, name, quiet=True)


def _may_be_compared(request: Request, name: str) -> bool:
    return request.refused(name, quiet=True) is ErrorCode.none and _may_describe(request, name)


def _permitted(request: Request, broker: Broker, asked: Resolved) -> Resolved:
    """The same, or refused: of a topic that may not be described, nothing is given away (ControllerApis.deleteTopics).
    By name DESCRIBE and DELETE are needed, by id DELETE; who may describe is told that a name is of no topic."""
    name, topic_id, refused = asked
    if name is None or refused is not None:
        return asked
    known, may = _may_describe(request, name), request.refused(name, quiet=True) is ErrorCode.none
    if may and (known or topic_id is not None):
        return asked
    if known and name not in broker.topics:
        return asked
    if may:  # for the log: what is missing
        request.may(Operation.DESCRIBE, ResourceType.TOPIC, name)
    else:
        request.refused(name)
    code = ErrorCode.topic_authorization_failed
    return name if known or topic_id is None else None, topic_id, BrokerError(code, TEXTS[code])


def _resolved(request: Request, broker: Broker, wanted: list[Wanted]) -> Generator[None, None, list[Resolved]]:
    if not broker.config.delete_topic_enable:
        code = ErrorCode.topic_deletion_disabled if request.version >= 3 else ErrorCode.invalid_request
        return [(name, topic_id, BrokerError(code, "Topic deletion is disabled.")) for name, topic_id in wanted]
    names = Counter(name for name, topic_id in wanted if topic_id is None and name is not None)
    ids = Counter(topic_id for name, topic_id in wanted if name is None and topic_id is not None)
    results: dict[Any, Resolved] = {}
    for name, topic_id in wanted:
        yield
        why = None
        if name is None and topic_id is None:
            why = "Neither topic name nor id were specified."
        elif name is not None and topic_id is not None:
            why = "You may not specify both topic name and topic id."
        elif name is not None and names[name] > 1:
            why = "Duplicate topic name."
        elif topic_id is not None and ids[topic_id] > 1:
            why = "Duplicate topic id."
        if why is not None:
            results[name, topic_id] = (name, topic_id, BrokerError(ErrorCode.invalid_request, why))
        elif name is not None:
            results[name, None] = (name, None, None)
        else:
            assert topic_id is not None
            topic = broker.topics.by_id(topic_id)
            if topic is None:
                results[topic_id] = (None, topic_id, BrokerError(ErrorCode.unknown_topic_id, NO_SUCH_ID))
            elif topic.name in names and _may_be_compared(request, topic.name):
                why = "The provided topic name maps to an ID that was already supplied."
                results[topic_id] = (topic.name, topic_id, BrokerError(ErrorCode.invalid_request, why))
            else:
                results[topic_id] = (topic.name, topic_id, None)
    refused_names = {name for name, topic_id, why in results.values() if topic_id is not None and why is not None}
    return [
        entry for entry in results.values() if not (entry[1] is None and entry[0] in refused_names and not entry[2])
    ]


NO_LOW_WATERMARK = -1


@api(21, 0, 2)
async def delete_records(request: Request, broker: Broker) -> Any:
    logs: list[Log] = []

    def answer(topic: Any, partition: Any) -> dict[str, Any]:
        try:
            request.check(topic.name)
            log = _log_with_deletable_records(broker, topic.name, partition.partition_index)
            low_watermark = log.delete_records(partition.offset)
            logs.append(log)
            return {"low_watermark": low_watermark}
        except BrokerError as error:
            return {"low_watermark": NO_LOW_WATERMARK, "error_code": error.code}

    response = await respond_by_partition(request, answer)
    unflushed = [log for log in logs if not log.epochs.is_flushed]
    if unflushed:  # by its epochs a tiered log knows after a crash where it starts
        await broker.run_blocking(_flush_epochs, unflushed)
    return response


def _log_with_deletable_records(broker: Broker, topic: str, partition: int) -> Log:
    if is_internal(topic):
        raise BrokerError(ErrorCode.invalid_topic_exception, f"Cannot delete records of internal topic {topic}")
    broker.check_not_mirrored(f"records of {topic} cannot be deleted")
    return broker.log(topic, partition)


def _flush_epochs(logs: Iterable[Log]) -> None:
    for log in logs:
        log.flush_epochs()
