"""Look-up of a message in a compiled schema by the message indexes before a value."""

from __future__ import annotations

from typing import Any

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.protobuf.proto_file import ProtoFile


def message_at(file: ProtoFile, indexes: tuple[int, ...]) -> Any:
    """Return the descriptor of the message that message indexes name.

    Confluent's Java clients count the messages in the text of the schema. Its other clients count those of the
    descriptor, in which each `map<...>` field has a message, too. If both ways give a message, that of the Java clients
    is used.

    Args:
        file: The compiled schema.
        indexes: Index of a message in the file, then of a message inside that one, and so on.

    Raises:
        OptionError: If there is no such message.
    """
    for ignored_entries in (file.generated_map_entries, frozenset[str]()):
        message = _message_at(file, indexes, ignored_entries)
        if message is not None:
            return message
    raise OptionError(f"the file has no message at indexes {list(indexes)}")


def _message_at(file: ProtoFile, indexes: tuple[int, ...], ignored_entries: frozenset[str]) -> Any:
    """Return the message at the indexes if `ignored_entries` are not counted; None if there is none."""
    siblings, message = [*file.descriptor.message_types_by_name.values()], None
    for index in indexes:
        counted = [sibling for sibling in siblings if sibling.full_name not in ignored_entries]
        if not 0 <= index < len(counted) or counted[index].GetOptions().map_entry:
            return None
        message = counted[index]
        siblings = message.nested_types
    return message
