"""Which Avro types match in schema resolution (Java's `Resolver`)."""

from __future__ import annotations

from functools import lru_cache

from kafkalog_spark.typed.avro.schema import NAMED, NO_DEFAULT, AvroType

_PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


def is_promoted(writer: AvroType, reader: AvroType) -> bool:
    """Return whether a value of the primitive type `writer` is promoted to the different primitive type `reader`."""
    return reader.kind in _PROMOTED.get(writer.kind, ())


def is_unreadable(writer: AvroType, reader: AvroType) -> bool:
    """Return whether no value of `writer` can be read as `reader`, without a look at types of fields and elements.

    A union of the writer is readable, because each value has one branch.
    """
    if writer.kind == "union":
        return False
    if reader.kind == "union":
        return matching_branch(writer, reader) < 0
    if writer.kind != reader.kind:
        return not is_promoted(writer, reader)
    if writer.kind in ("fixed", "enum"):  # names without namespaces count, as in Avro's specification
        return writer.short_name != reader.short_name or writer.size != reader.size
    return writer.kind == "record" and _lacks_default(writer, reader)


@lru_cache(4096)  # types that refer to each other repeat the same pairs exponentially often
def matching_branch(writer: AvroType, reader: AvroType) -> int:
    """Return the index of the branch of a union that a value is read as, or -1 if no branch matches.

    The first choice is the same type, with the same full name if it has one. The second is a record with the same
    structure, preferably with the same short name. The third is a promotion.

    Args:
        writer: Type of the value, not a union.
        reader: The union.
    """
    same_structure = -1
    for i, branch in enumerate(reader.branches):
        if branch.kind != writer.kind:
            continue
        if writer.kind not in NAMED or writer.name == branch.name:
            return i
        if (
            writer.kind == "record"
            and not _has_different_structure(writer, branch)
            and (same_structure < 0 or writer.short_name == branch.short_name)
        ):
            same_structure = i
    if same_structure >= 0:
        return same_structure
    return next((i for i, branch in enumerate(reader.branches) if is_promoted(writer, branch)), -1)


def are_equivalent(writer: AvroType, reader: AvroType, seen: set[tuple[int, int]] | None = None) -> bool:
    """Return whether two types have the same structure in every part, so that branches of unions correspond by index.

    Names are compared without namespaces (Java's `Resolver.unionEquiv`).

    Args:
        writer: One type.
        reader: The other type.
        seen: id() of the pairs that are compared already; the comparison of recursive types ends there.
    """
    seen = set() if seen is None else seen
    if writer is reader or (id(writer), id(reader)) in seen:
        return True
    seen.add((id(writer), id(reader)))
    if (writer.kind, writer.short_name, writer.symbols, writer.size) != (
        reader.kind,
        reader.short_name,
        reader.symbols,
        reader.size,
    ):
        return False
    writer_names, reader_names = ([field.name for field in type_.fields] for type_ in (writer, reader))
    if writer_names != reader_names or len(writer.branches) != len(reader.branches):
        return False
    return all(are_equivalent(part, other, seen) for part, other in zip(writer.parts, reader.parts, strict=True))


def _lacks_default(writer: AvroType, reader: AvroType) -> bool:
    written = {field.name for field in writer.fields}
    return any(field.default is NO_DEFAULT and field.name not in written for field in reader.fields)


def _has_different_structure(writer: AvroType, reader: AvroType) -> bool:
    reader_fields = {field.name: field for field in reader.fields}
    return _lacks_default(writer, reader) or any(
        field.name in reader_fields and is_unreadable(field.type, reader_fields[field.name].type)
        for field in writer.fields
    )
