"""Classes of structs whose fields are attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from kafkalog_spark.format.messages.definitions import Struct
from kafkalog_spark.format.messages.source import Source


class StructValue:
    """Base class of the structs of a message in one version.

    Fields are attributes in snake_case and keyword arguments of the constructor. A field that the version does not have
    reads as its default and cannot be set. Treat instances as immutable; `_replace` returns a changed copy.
    """

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()  # those that the version has, as in a named tuple
    _struct: ClassVar[Struct]
    _message: ClassVar[Any]  # the CompiledMessage that the class belongs to

    def _replace(self, **changes: Any) -> Self:
        return type(self)(**{name: getattr(self, name) for name in self._fields} | changes)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._fields)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self._fields))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._fields)})"


def struct_class(struct: Struct, defaults: Mapping[str, Any], annotations: Mapping[str, str]) -> type[StructValue]:
    """Return a subclass of StructValue for a struct.

    Args:
        struct: The struct in one version.
        defaults: Default of each field by its name.
        annotations: Type of each attribute by its name, as source text.
    """
    present = [field.name for field in struct.present]
    source = Source(f"class {struct.name} version {struct.version}", {"StructValue": StructValue})
    with source.block(f"class {struct.name}(StructValue):"):
        source.add_line(f"__slots__ = _fields = ({''.join(f'{name!r}, ' for name in present)})")
        for name in present:
            source.add_line(f"{name}: {annotations[name]}")
        for name in defaults.keys() - set(present):
            source.add_line(f"{name} = {source.new_name('default', (defaults[name],))}[0]")
        if present:
            arguments = (f"{name}={source.new_name('default', (defaults[name],))}[0]" for name in present)
            with source.block(f"def __init__(self, *, {', '.join(arguments)}):"):
                for name in present:
                    source.add_line(f"self.{name} = {name}")
    class_: type[StructValue] = source.compile(struct.name)
    return class_
