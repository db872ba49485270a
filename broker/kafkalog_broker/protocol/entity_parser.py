"""Parser of one of kio's entities that trusts nothing of the bytes: of requests as the broker reads them, and of
responses as clients of other brokers do."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from kio.serial import entity_reader
from kio.serial.errors import SerialError

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol.array_lengths import array_check
from kafkalog_broker.protocol.unknown_tags import without_unknown_tags

Body = bytes | memoryview

# kio raises KeyError for an unknown tagged field, ValueError for bad varints and unknown enum values, OverflowError for
# durations and dates that Python cannot hold, and its own SerialError for the rest.
DAMAGE = (MalformedRequest, SerialError, ValueError, KeyError, OverflowError, IndexError, struct.error)


def entity_parser(entity: type[Any]) -> Callable[[Body, int], Any]:
    """(bytes, position) to the entity that begins there. Array lengths are held against the bytes that are left before
    kio makes room for them, and unknown tagged fields are passed over (KIP-482). It raises one of DAMAGE."""
    read, check = entity_reader(entity), array_check(entity)

    def parse(data: Body, position: int) -> Any:
        if check is not None:
            check(data, position)
        try:
            return read(data, position)[0]
        except KeyError:
            return read(without_unknown_tags(data, position, entity), 0)[0]

    return parse
