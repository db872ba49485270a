"""Encoded keys and values of the records in the internal topics of coordinators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.format.messages.internal import Message

Record = tuple[bytes, bytes | None]  # key, and value or None for a tombstone

MAX_TOMBSTONES_PER_BATCH = 1_000  # about 100 KB, far below message.max.bytes


class ProducerIdAndEpoch(NamedTuple):
    """A producer ID and epoch, which together identify one instance of a producer."""

    producer_id: int
    epoch: int


def encode_message(kind: Message, values: Sequence[Any], version: int | None = None) -> bytes:
    """Encode a key or value like `Message.encode`.

    Raises:
        BrokerError: See `text_too_long_error`.
    """
    try:
        return kind.encode(values, version)
    except InvalidRecord as error:
        raise text_too_long_error(error) from None


def text_too_long_error(error: InvalidRecord) -> BrokerError:
    """Return the error for a text that is too long for a record.

    A flexible request can carry a longer text than a key can hold. Kafka fails with UNKNOWN_SERVER_ERROR too.
    """
    return BrokerError(ErrorCode.unknown_server_error, error.what)
