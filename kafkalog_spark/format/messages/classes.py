"""Classes of structs whose fields are attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from kafkalog_spark.format.messages.definitions import Struct
from kafkalog_spark.format.messages.source import Source


class StructValue:
    """A struct of a message in one version: attributes in snake_case, which are arguments of the constructor.

    A field that the version does not have reads as its default and cannot be set. Values are not changed after they are
    made; `_replace` returns a changed copy.
    """

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()  # as in a named tuple; those of the version
    _struct: ClassVar[Struct]
    _message: ClassVar[Any]  # the CompiledMessage of which it is a part

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
    """Make the class of a struct."""
    present = [field.name for field in struct.present]
    source = Source(f"class {struct.name} version {struct.version}", {"StructValue": StructValue})
    with source.block(f"class {struct.name}(StructValue):"):
        source.line(f"__slots__ = _fields = ({''.join(f'{name!r}, ' for name in present)})")
        for name in present:
            source.line(f"{name}: {annotations[name]}")
        for name in defaults.keys() - set(present):
            source.line(f"{name} = {source.name('default', (defaults[name],))}[0]")
        if present:
            arguments = (f"{name}={source.name('default', (defaults[name],))}[0]" for name in present)
            with source.block(f"def __init__(self, *, {', '.join(arguments)}):"):
                for name in present:
                    source.line(f"self.{name} = {name}")
    made: type[StructValue] = source.compiled(struct.name)
    return made
