"""The coordinator's transactional ids (KIP-664).

65 DescribeTransactions, version 0: some of them by name.

66 ListTransactions, versions 0 to 2: all of them, filtered.
v1  open for longer than a time; v2  a regular expression for the id (KIP-1152): INVALID_REGULAR_EXPRESSION"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Encoded, Request, api
from kafkalog_broker.protocol.frames import compact_string
from kafkalog_broker.protocol.response_entity import entity, respond, response_module
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.transactions.transaction_metadata import BY_LABEL, TransactionMetadata
from kafkalog_spark.format.varints import uvarint

_HEAD = struct.Struct(">h")
_FIELDS = struct.Struct(">iqqh")  # timeout, start, producer id, producer epoch
_NO_FIELDS = _FIELDS.pack(0, 0, 0, 0)
"""Fields of an error: Kafka's defaults."""


@api(65, 0, 0)
async def describe_transactions(request: Request, broker: Broker) -> Encoded:
    """By hand: kio cannot write the start time of a transaction that has not begun, which is -1."""
    ids = request.entity.transactional_ids
    body = bytearray(struct.pack(">i", 0))  # throttle time
    body += uvarint(len(ids) + 1)
    for transactional_id in ids:
        try:
            code = request.refused(transactional_id)
            if code is not ErrorCode.none:
                raise BrokerError(code)
            body += _state(broker.transactions.describe(transactional_id), request)
        except BrokerError as error:
            body += _HEAD.pack(error.code) + compact_string(transactional_id) + compact_string("") + _NO_FIELDS
            body += b"\1\0"  # no topics, no tagged fields
    body.append(0)
    return Encoded([bytes(body)])


def _state(metadata: TransactionMetadata, request: Request) -> bytes:
    out = bytearray(_HEAD.pack(ErrorCode.none))
    out += compact_string(metadata.transactional_id) + compact_string(metadata.state.label)
    out += _FIELDS.pack(metadata.timeout_ms, metadata.start_ms, metadata.producer_id, metadata.producer_epoch)
    topics = [(name, list(group)) for name, group in groupby(sorted(metadata.partitions), lambda part: part.topic)
        if request.may(Operation.DESCRIBE, ResourceType.TOPIC, name)]  # fmt: skip
    out += uvarint(len(topics) + 1)
    for name, partitions in topics:
        out += compact_string(name) + uvarint(len(partitions) + 1)
        out += struct.pack(f">{len(partitions)}i", *(part.partition for part in partitions))
        out.append(0)
    out.append(0)
    return bytes(out)


@api(66, 0, 2)
async def list_transactions(request: Request, broker: Broker) -> Any:
    asked = request.entity
    found = broker.transactions.table.all()
    unknown = [name for name in asked.state_filters if name not in BY_LABEL]
    if asked.state_filters:
        states = {BY_LABEL[name] for name in asked.state_filters if name in BY_LABEL}
        found = [metadata for metadata in found if metadata.state in states]
    if asked.producer_id_filters:
        producer_ids = set(asked.producer_id_filters)
        found = [metadata for metadata in found if metadata.producer_id in producer_ids]
    duration_ms = getattr(asked, "duration_filter", -1)
    if duration_ms >= 0:  # as in Kafka, also what has not begun has been open for long
        now_ms = broker.clock.now_ms()
        found = [metadata for metadata in found if now_ms - metadata.start_ms > duration_ms]
    pattern = getattr(asked, "transactional_id_pattern", None)
    if pattern:
        found = _matching(found, pattern)
    if request.access is not None:
        found = [
            one async for one in TimeSlice().spread(found) if not request.refused(one.transactional_id, quiet=True)
        ]
    return _listed(request, ErrorCode.none, found, unknown)


def _matching(found: Sequence[TransactionMetadata], pattern: str) -> list[TransactionMetadata]:
    """Those whose whole id matches. By RE2, as in Kafka: a pattern of Python's `re` can take for ever.

    Raises BrokerError invalid_regular_expression.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = pa.array([metadata.transactional_id for metadata in found], pa.string())
    try:
        pc.match_substring_regex(pa.array([""]), pattern=pattern)  # by itself: brackets must not close ours
        matches = pc.match_substring_regex(ids, pattern=rf"\A(?:{pattern})\z").to_pylist()
    except pa.ArrowInvalid as error:
        raise BrokerError(ErrorCode.invalid_regular_expression, f"{pattern!r} is no RE2 expression: {error}") from None
    return [metadata for metadata, matched in zip(found, matches, strict=True) if matched]


def _listed(request: Request, code: ErrorCode, found: Sequence[TransactionMetadata], unknown: Sequence[str]) -> Any:
    module = response_module(request)
    states = tuple(
        entity(
            module.TransactionState,
            transactional_id=metadata.transactional_id,
            producer_id=metadata.producer_id,
            transaction_state=metadata.state.label,
        )
        for metadata in found
    )
    return respond(
        request,
        error_code=code,
        unknown_state_filters=tuple(unknown),
        transaction_states=states,
    )
