"""Finds a message of a compiled schema by the message indexes in front of a value."""

from __future__ import annotations

from typing import Any

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.protobuf.proto_file import ProtoFile


def message_at(file: ProtoFile, indexes: tuple[int, ...]) -> Any:
    """Return the message that the message indexes of a value name.

    Confluent's Java clients count the messages in the text of the schema. Its other clients count those of the
    descriptor, where each `map<...>` field has a message. If both give a message, that of the Java clients is used.

    Args:
        file: The compiled schema.
        indexes: Index of a message in the file, then of a message inside that one, and so on.

    Raises:
        OptionError: If there is no such message.
    """
    for ignored_entries in (file.implied_entries, frozenset[str]()):
        messages, found = [*file.descriptor.message_types_by_name.values()], None
        for index in indexes:
            counted = [message for message in messages if message.full_name not in ignored_entries]
            found = counted[index] if 0 <= index < len(counted) else None
            if found is None or found.GetOptions().map_entry:
                found = None
                break
            messages = found.nested_types
        if found is not None:
            return found
    raise OptionError(f"the file has no message at indexes {list(indexes)}")
