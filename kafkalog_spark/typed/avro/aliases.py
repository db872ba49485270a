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
    type_names: dict[str, str] = {}
    field_names: dict[str, dict[str, str]] = {}
    _collect_aliases(reader, type_names, field_names, set())
    if not type_names and not field_names:
        return writer
    return _rename(writer, type_names, field_names, {})


def _collect_aliases(
    reader: AvroType, type_names: dict[str, str], field_names: dict[str, dict[str, str]], seen: set[int]
) -> None:
    """Add the aliases of a type and its parts.

    Args:
        reader: The type.
        type_names: Name of a type by its alias.
        field_names: Name of a field by the name of its record and its alias.
        seen: id() of the types that were visited.
    """
    if id(reader) in seen:
        return
    seen.add(id(reader))
    for alias in reader.aliases:
        type_names[alias] = reader.name
    for field in reader.fields:
        for alias in field.aliases:
            field_names.setdefault(reader.name, {})[alias] = field.name
    for part in reader.parts:
        _collect_aliases(part, type_names, field_names, seen)


def _rename(
    writer: AvroType,
    type_names: dict[str, str],
    field_names: dict[str, dict[str, str]],
    renamed: dict[int, AvroType],
) -> AvroType:
    """Return a renamed copy of a type. `renamed` has the copies of the types that were visited, by id()."""
    if id(writer) in renamed:
        return renamed[id(writer)]
    copy = replace(writer, name=type_names.get(writer.name, writer.name))
    renamed[id(writer)] = copy
    names = field_names.get(copy.name, {})
    copy.fields = tuple(
        replace(
            field,
            name=names.get(field.name, field.name),
            type=_rename(field.type, type_names, field_names, renamed),
        )
        for field in writer.fields
    )
    copy.branches = tuple(_rename(branch, type_names, field_names, renamed) for branch in writer.branches)
    copy.items = None if writer.items is None else _rename(writer.items, type_names, field_names, renamed)
    return copy
