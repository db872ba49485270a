"""Aliases of a reader schema: the writer schema with the reader's names (Java's `Schema.applyAliases`)."""

from __future__ import annotations

from dataclasses import replace

from kafkalog_spark.typed.avro.schema import AvroType


def applied(writer: AvroType, reader: AvroType) -> AvroType:
    """The writer's type, with types and fields renamed that the reader has aliases for; itself where there are none."""
    types: dict[str, str] = {}
    fields: dict[str, dict[str, str]] = {}
    _collect(reader, types, fields, set())
    if not types and not fields:
        return writer
    return _renamed(writer, types, fields, {})


def _collect(r: AvroType, types: dict[str, str], fields: dict[str, dict[str, str]], seen: set[int]) -> None:
    if id(r) in seen:
        return
    seen.add(id(r))
    for alias in r.aliases:
        types[alias] = r.name
    for member in r.fields:
        for alias in member.aliases:
            fields.setdefault(r.name, {})[alias] = member.name
    for part in r.parts:
        _collect(part, types, fields, seen)


def _renamed(
    w: AvroType, types: dict[str, str], fields: dict[str, dict[str, str]], seen: dict[int, AvroType]
) -> AvroType:
    if id(w) in seen:
        return seen[id(w)]
    new = replace(w, name=types.get(w.name, w.name))
    seen[id(w)] = new
    names = fields.get(new.name, {})
    new.fields = tuple(
        replace(member, name=names.get(member.name, member.name), type=_renamed(member.type, types, fields, seen))
        for member in w.fields
    )
    new.branches = tuple(_renamed(branch, types, fields, seen) for branch in w.branches)
    new.items = None if w.items is None else _renamed(w.items, types, fields, seen)
    return new
