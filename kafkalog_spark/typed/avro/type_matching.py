"""Matching of types: the part of Avro's schema resolution that decides, without making a program."""

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


def promotes(w: AvroType, r: AvroType) -> bool:
    """True if a value of `w` can be read as the other primitive type `r`."""
    return r.kind in _PROMOTED.get(w.kind, ())


def is_error(w: AvroType, r: AvroType) -> bool:
    """True if two types cannot be resolved at all, by what they are themselves; their parts are not looked at."""
    if w.kind == "union":
        return False
    if r.kind == "union":
        return matching_branch(w, r) < 0
    if w.kind != r.kind:
        return not promotes(w, r)
    if w.kind in ("fixed", "enum"):  # by their names without namespaces, as Avro's specification and Java have it
        return w.short_name != r.short_name or w.size != r.size
    return w.kind == "record" and _lacks_default(w, r)


def _lacks_default(w: AvroType, r: AvroType) -> bool:
    written = {member.name for member in w.fields}
    return any(member.default is NO_DEFAULT and member.name not in written for member in r.fields)


@lru_cache(4096)  # pairs are met again and again where types name each other: 2^40 times in a schema of a page
def matching_branch(w: AvroType, r: AvroType) -> int:
    """Branch of the union `r` that a value of `w`, no union, is read as; -1 for none: the same type, by full name where
    it has one; else a record of the same structure, those of the same short name first; else a promotion."""
    structure = -1
    for i, branch in enumerate(r.branches):
        if branch.kind != w.kind:
            continue
        if w.kind not in NAMED or w.name == branch.name:
            return i
        if w.kind == "record" and not _differs(w, branch) and (structure < 0 or w.short_name == branch.short_name):
            structure = i
    if structure >= 0:
        return structure
    return next((i for i, branch in enumerate(r.branches) if promotes(w, branch)), -1)


def _differs(w: AvroType, r: AvroType) -> bool:
    reads = {member.name: member for member in r.fields}
    return _lacks_default(w, r) or any(
        member.name in reads and is_error(member.type, reads[member.name].type) for member in w.fields
    )


def equal_types(w: AvroType, r: AvroType, seen: set[tuple[int, int]] | None = None) -> bool:
    """True if two types are written alike in every part, so that branch i of a union is branch i of the other (Java's
    `Resolver.unionEquiv`, which compares names without namespaces). seen: pairs that are compared already."""
    seen = set() if seen is None else seen
    if w is r or (id(w), id(r)) in seen:
        return True
    seen.add((id(w), id(r)))
    if (w.kind, w.short_name, w.symbols, w.size) != (r.kind, r.short_name, r.symbols, r.size):
        return False
    w_names, r_names = ([field.name for field in type_.fields] for type_ in (w, r))
    if w_names != r_names or len(w.branches) != len(r.branches):
        return False
    return all(equal_types(below, other, seen) for below, other in zip(w.parts, r.parts, strict=True))
