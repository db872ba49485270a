"""65 DescribeTransactions, version 0: what the coordinator knows of some transactional ids (KIP-664)."""

from __future__ import annotations

import struct
from itertools import groupby

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Encoded, Request, api
from kafkalog_broker.protocol.frames import compact_string, uvarint
from kafkalog_broker.transactions.transaction_metadata import TransactionMetadata

_HEAD = struct.Struct(">h")
_FIELDS = struct.Struct(">iqqh")  # timeout, start, producer id, producer epoch
_NO_FIELDS = _FIELDS.pack(0, 0, 0, 0)
"""What Kafka sends with an error: its defaults."""


@api(65, 0, 0)
async def handle(request: Request, broker: Broker) -> Encoded:
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
