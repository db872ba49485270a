"""Our values of messages beside kio's."""

from __future__ import annotations

import dataclasses
from typing import Any


def is_same(ours: Any, kios: Any) -> bool:
    """True if all fields of the version have equal values, error codes by their numbers."""
    if dataclasses.is_dataclass(kios):
        names = [field.name for field in dataclasses.fields(kios)]
        return sorted(ours._fields) == sorted(names) and all(
            is_same(getattr(ours, name), getattr(kios, name)) for name in names
        )
    if isinstance(kios, tuple):
        return type(ours) is tuple and len(ours) == len(kios) and all(map(is_same, ours, kios))
    return bool(ours == kios) or repr(ours) == repr(kios)  # a number may be none, which equals nothing


def ours_of(kind: Any, kios: Any) -> Any:
    """The value of our class with the fields of kio's value."""
    values = {field.name: getattr(kios, field.name) for field in dataclasses.fields(kios)}
    for field in kind._struct.present:
        if field.struct is not None and values[field.name] is not None:
            inner = kind._message.class_of(field.struct)
            value = values[field.name]
            values[field.name] = (
                tuple(ours_of(inner, one) for one in value) if field.is_array else ours_of(inner, value)
            )
    return kind(**values)
