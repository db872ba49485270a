"""Key and value of the record of a classic group in __consumer_offsets.

Written as GroupMetadataKey 2 and GroupMetadataValue 3, the versions that Kafka 4.3 writes; values 0 to 4 are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kafkalog_broker.coordinator.coordinator_record import encode_message
from kafkalog_spark.format.messages.internal import message

_GROUP_KEY, _GROUP_VALUE = message("GroupMetadataKey"), message("GroupMetadataValue")
_GROUP_VALUE_VERSION = 3


class GroupKey(NamedTuple):
    group_id: str


def group_key(group_id: str) -> bytes:
    """Encode the key of a group. Raises BrokerError unknown_server_error if the group ID is too long."""
    return encode_message(_GROUP_KEY, (group_id,))


def group_value(group: Sequence[Any]) -> bytes:
    """Encode the fields of a group. Raises BrokerError unknown_server_error if a text is too long."""
    return encode_message(_GROUP_VALUE, group, _GROUP_VALUE_VERSION)


def decode_group_value(value: bytes) -> Any:
    """Decode a GroupMetadataValue.

    Raises:
        CorruptLog: If the bytes are malformed.
        UnsupportedFormat: If the version is newer than in Kafka 4.3.
    """
    return _GROUP_VALUE.decode(value)
