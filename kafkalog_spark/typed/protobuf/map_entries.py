"""Map entries that a .proto file declares explicitly, as messages with `option map_entry = true`.

Confluent's Java clients register the field `map<K, V>` in the form that it has in a descriptor: a repeated message with
that option. protoc refuses the option in a text, so the message is marked with a reserved name instead, which has no
effect on values, and the option is set in the compiled descriptor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.protobuf.proto_text import statements_of

_OPTIONAL = 1  # FieldDescriptorProto.LABEL_OPTIONAL, which fields of proto3 also have


def unused_marker(texts: Collection[str]) -> str:
    """Return a name that does not occur in any of the texts."""
    marker = "kafkalog_map_entry"
    while any(marker in text for text in texts):
        marker += "_"
    return marker


def mark_map_entries(text: str, marker: str) -> str:
    """Return a .proto file with `reserved "MARKER"` instead of each `option map_entry = true`."""
    parts, copied = [], 0
    is_edition = False
    for statement in statements_of(text):
        tokens = statement.tokens
        is_edition = is_edition or (statement.depth == 0 and tokens[0] == "edition")
        if statement.depth and tokens[:3] == ["option", "map_entry", "="]:
            reserved = f"reserved {marker}" if is_edition else f'reserved "{marker}"'
            semicolon = text[statement.end - 1 : statement.end]
            parts += [text[copied : statement.start], reserved if tokens[3:] == ["true"] else "", semicolon]
            copied = statement.end
    return "".join([*parts, text[copied:]])


def restore_map_entries(file: Any, marker: str, origin: str) -> None:
    """Set the option map_entry on the marked messages of a FileDescriptorProto, and remove the marker.

    Args:
        file: The compiled file. It is modified.
        marker: The reserved name.
        origin: Where the schema comes from, for errors.

    Raises:
        OptionError: If a marked message does not consist of a key and a value.
    """
    for name, message in _messages_of(file):
        if marker not in message.reserved_name:
            continue
        message.reserved_name.remove(marker)
        fields = sorted((field.number, field.name, field.label) for field in message.field)
        if fields != [(1, "key", _OPTIONAL), (2, "value", _OPTIONAL)]:
            raise OptionError(f"{origin} has a message {name} with option map_entry, but it is not a key and a value")
        message.options.map_entry = True


def map_entry_names(file: Any) -> list[str]:
    """Return the full names of the map entries in a FileDescriptorProto."""
    return [name for name, message in _messages_of(file) if message.options.map_entry]


def _messages_of(file: Any) -> Iterator[tuple[str, Any]]:
    """Yield (full name, DescriptorProto) for all messages of a file."""
    pending = [(file.package, file.message_type)]
    while pending:
        outer, messages = pending.pop()
        for message in messages:
            name = f"{outer}.{message.name}" if outer else message.name
            yield name, message
            pending.append((name, message.nested_type))
