"""Aliases of a reader schema (Java's `Schema.applyAliases`)."""

from __future__ import annotations

from dataclasses import replace

from kafkalog_spark.typed.avro.schema import AvroType


def apply_aliases(writer: AvroType, reader: AvroType) -> AvroType:
    """Rename the types and fields of a writer schema for which the reader schema has aliases.

    Args:
        writer: The writer schema. It is not modified.
        reader: The reader schema.

    Returns:
        The renamed writer schema, or `writer` itself if the reader schema has no aliases.
    """
    types: dict[str, str] = {}
    fields: dict[str, dict[str, str]] = {}
    _collect(reader, types, fields, set())
    if not types and not fields:
        return writer
    return _renamed(writer, types, fields, {})


def _collect(reader: AvroType, types: dict[str, str], fields: dict[str, dict[str, str]], seen: set[int]) -> None:
    """Add the aliases of a type to `types` (alias to name) and `fields` (record to alias to field name)."""
    if id(reader) in seen:
        return
    seen.add(id(reader))
    for alias in reader.aliases:
        types[alias] = reader.name
    for field in reader.fields:
        for alias in field.aliases:
            fields.setdefault(reader.name, {})[alias] = field.name
    for part in reader.parts:
        _collect(part, types, fields, seen)


def _renamed(
    writer: AvroType, types: dict[str, str], fields: dict[str, dict[str, str]], seen: dict[int, AvroType]
) -> AvroType:
    if id(writer) in seen:
        return seen[id(writer)]
    new = replace(writer, name=types.get(writer.name, writer.name))
    seen[id(writer)] = new
    names = fields.get(new.name, {})
    new.fields = tuple(
        replace(field, name=names.get(field.name, field.name), type=_renamed(field.type, types, fields, seen))
        for field in writer.fields
    )
    new.branches = tuple(_renamed(branch, types, fields, seen) for branch in writer.branches)
    new.items = None if writer.items is None else _renamed(writer.items, types, fields, seen)
    return new
